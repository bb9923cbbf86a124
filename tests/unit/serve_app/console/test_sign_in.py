"""The console where keys are configured: who sees it, and how a browser signs in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.errors import ConfigError
from replicas.door.key_source import KeySource
from replicas.door.settings import KeysFrom
from serve_app.console.app import console_app
from serve_app.console.arguments import keys_of
from serve_app.console.deployments import Deployment
from serve_app.console.page import Page
from serve_app.console.sign_in import (
    COOKIE,
    MOST_FORM_BYTES,
    MOST_SESSIONS,
    SESSION_S,
    UNKNOWN,
    Sessions,
)
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
EVERY = ("", "/", "/api/fleet", "/api/series?group=sla", "/nowhere")


async def read() -> tuple[dict[str, Any], Sequence[Deployment]]:
    return fleet(), []


class Site:
    """The console where Ray Serve mounts it, behind keys."""

    def __init__(self, file: Path) -> None:
        self.file, self.now_s = file, 1000.0
        file.write_text(f"alice {ALICE}\nbob {BOB}")
        self.keys = KeySource(KeysFrom(file=str(file)), lambda: self.now_s)
        self.watch = Watch(read)
        transport = httpx.ASGITransport(console_app(self.watch, self.keys), root_path="/console")
        self.client = httpx.AsyncClient(transport=transport, base_url="http://here")

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"/console{path}", headers=headers)

    async def sign_in(self, key: str, **headers: str) -> httpx.Response:
        return await self.client.post("/console/sign-in", data={"key": key}, headers=headers)


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    made = Site(tmp_path / "keys")
    await made.watch.look()
    return made


@pytest.mark.parametrize("path", EVERY)
@pytest.mark.parametrize("key", [None, "sk-nobody-0123456789", ALICE[:-1], ""])
async def test_without_a_good_key_nothing_is_shown(site: Site, path: str, key: str | None) -> None:
    shown = {} if key is None else {"authorization": f"Bearer {key}"}
    answer = await site.get(path, **shown, cookie=f"{COOKIE}={key}")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "llama" not in answer.text and "sla" not in answer.text
    assert answer.headers["cache-control"] == "no-store"
    is_page = not path.startswith("/api/")
    assert answer.headers["content-type"].startswith("text/html" if is_page else "application/json")


async def test_a_browser_signs_in_once(site: Site) -> None:
    answer = await site.sign_in(ALICE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
    cookie = answer.headers["set-cookie"]
    assert ALICE not in cookie
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts == {"httponly", "path=/console", "samesite=strict"}
    for path in EVERY[:-1]:
        assert (await site.get(path)).status_code == 200
    assert (await site.get("/")).text == Page.shipped().html
    assert (await site.get("/nowhere")).status_code == 404
    assert (await site.get("/sign-in")).headers["location"] == "/console/"


async def test_behind_tls_the_cookie_keeps_to_it(site: Site) -> None:
    answer = await site.sign_in(ALICE, **{"x-forwarded-proto": "https"})
    assert "; Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("form", [{"key": "wrong"}, {"key": ""}, {}, {"other": ALICE}])
async def test_a_wrong_key_gets_the_form_again_and_is_not_repeated(
    site: Site, form: dict[str, str]
) -> None:
    answer = await site.client.post("/console/sign-in", data=form)
    assert answer.status_code == 401
    assert UNKNOWN in answer.text
    assert "set-cookie" not in answer.headers
    assert "wrong" not in answer.text.replace("wrong with", "")
    assert 'action="/console/sign-in"' in answer.text


async def test_a_form_that_is_too_long_or_no_form_is_no_key(site: Site) -> None:
    long = f"key={ALICE}&more=" + "x" * MOST_FORM_BYTES
    for body in (long.encode(), b"\xff\xfe=\x00", b"{}"):
        answer = await site.client.post("/console/sign-in", content=body)
        assert answer.status_code == 401


async def test_a_key_that_is_gone_ends_its_sessions(site: Site) -> None:
    await site.sign_in(ALICE)
    site.file.write_text(f"bob {BOB}")
    site.now_s += 1.0
    assert (await site.get("/api/fleet")).status_code == 401


async def test_where_it_is_mounted_cannot_become_markup(site: Site) -> None:
    app = console_app(site.watch, site.keys)
    transport = httpx.ASGITransport(app, root_path='/"><b>')
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        answer = await client.get("/")
    assert "<b>" not in answer.text


def test_a_session_ends_and_there_are_only_so_many(site: Site) -> None:
    now_s = [0.0]
    sessions = Sessions(site.keys, lambda: now_s[0])
    assert sessions.begin("sk-nobody-0123456789") is None
    first = sessions.begin(ALICE)
    assert first is not None
    now_s[0] = SESSION_S - 1
    assert sessions.holds(first)
    second = sessions.begin(BOB)
    assert second not in (None, first)
    now_s[0] = SESSION_S
    assert not sessions.holds(first)
    others = [sessions.begin(ALICE) for _ in range(MOST_SESSIONS)]
    assert not sessions.holds(str(second))  # the oldest made room
    assert all(sessions.holds(str(number)) for number in others)
    assert not sessions.holds("")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["x"], r"args: \['x'\] is not allowed"),
        ({"theme": "dark"}, "args: unknown key 'theme'"),
        ({"security": {"limits": {}}}, "args.security: unknown key 'limits'"),
        ({"security": "sk-0123456789abcdef"}, "args.security"),
        ({"security": {"keys": "sk-0123456789abcdef"}}, "args.security.keys: must be a mapping"),
        ({"security": {"keys": {}}}, "args.security.keys"),
    ],
)
def test_it_takes_nothing_but_keys(args: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        keys_of(args)
