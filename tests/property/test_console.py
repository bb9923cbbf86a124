"""Whatever is asked of the console has an answer, and no error but its own."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicas.door.key_source import KeySource
from replicas.door.settings import KeysFrom
from serve_app.console.app import console_app, series_of, timeline_of
from serve_app.console.view import View
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet


async def _read() -> Any:
    return fleet(), []


WATCH = Watch(_read)
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("CONSOLE_KEYS", "alice sk-alice-0123456789")
    GUARDED = console_app(WATCH, KeySource(KeysFrom(env="CONSOLE_KEYS")))
VIEW = View()
VIEW.look(fleet(), [], 1000.0)
KNOWN = st.sampled_from([(one["group"], one["replica"]) for one in VIEW.fleet["replicas"]])
TEXT = st.text(max_size=1200) | st.floats().map(str)
KEYS = st.sampled_from(["group", "replica", "after", "other"])


@given(query=st.dictionaries(KEYS, TEXT))
def test_any_question_has_an_answer(query: dict[str, str]) -> None:
    status, answer = series_of(VIEW, query)
    assert status in (400, 404)
    assert list(json.loads(json.dumps(answer, allow_nan=False))) == ["error"]


@given(known=KNOWN, after=st.floats(allow_nan=False, allow_infinity=False))
def test_a_known_replica_has_its_points_from_any_time_on(known, after):
    group, replica = known
    query = {"group": group, "replica": replica, "after": str(after)}
    status, answer = series_of(VIEW, query)
    assert status == 200
    assert answer["series"]["unix_s"] == ([1000.0] if after < 1000.0 else [])
    assert json.dumps(answer, allow_nan=False)


HEADER = st.binary(max_size=200).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b""))


@given(
    path=st.sampled_from(["/", "/api/fleet", "/api/timeline", "/sign-in", "/x"]),
    method=st.sampled_from(["GET", "POST", "HEAD"]),
    authorization=HEADER,
    cookie=HEADER,
    body=st.binary(max_size=5000) | st.binary(max_size=200).map(lambda raw: b"key=" + raw),
)
def test_nothing_but_a_key_opens_it(path, method, authorization, cookie, body):
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(GUARDED, root_path="/console")
        headers = [(b"authorization", authorization), (b"cookie", cookie)]
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, content=body, headers=headers)

    answer = asyncio.run(ask())
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@given(replica=TEXT)
def test_no_name_has_a_timeline_but_a_replicas(replica: str) -> None:
    known = asyncio.run(timeline_of(WATCH, None, {"replica": replica}))
    assert known[0] == 404
