"""Whatever is sent to a console with keys, nothing but a key opens it."""

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicas.door.key_source import KeySource
from replicas.door.settings import KeysFrom
from serve_app.console.app import console_app
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet


async def _read() -> Any:
    return fleet(), []


with pytest.MonkeyPatch.context() as patch:
    patch.setenv("CONSOLE_KEYS", "alice sk-alice-0123456789")
    GUARDED = console_app(Watch(_read), KeySource(KeysFrom(env="CONSOLE_KEYS")))
HEADER = st.binary(max_size=200).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b""))


@given(
    path=st.sampled_from(["/", "/api/fleet", "/api/timeline", "/x"]),
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
