"""The console where keys are configured: who sees it."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.errors import ConfigError
from replicas.door.key_source import KeySource
from replicas.door.settings import KeysFrom
from serve_app.console.app import Page, console_app
from serve_app.console.arguments import keys_of
from serve_app.console.view import Deployment
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789"
EVERY = ("", "/", "/api/fleet", "/api/series?group=sla")


async def read() -> tuple[dict[str, Any], Sequence[Deployment]]:
    return fleet(), []


class Site:
    """The console where Ray Serve mounts it, behind keys."""

    def __init__(self, file: Path) -> None:
        self.file, self.now_s = file, 1000.0
        file.write_text(f"alice {ALICE}\nbob {BOB}")
        self.watch = Watch(read)
        keys = KeySource(KeysFrom(file=str(file)), lambda: self.now_s)
        transport = httpx.ASGITransport(console_app(self.watch, keys), root_path="/console")
        self.client = httpx.AsyncClient(transport=transport, base_url="http://here")

    async def get(self, path: str, shown: str | None) -> httpx.Response:
        headers = {} if shown is None else {"authorization": shown}
        return await self.client.get(f"/console{path}", headers=headers)


def basic(password: str) -> str:
    """As a browser shows what its user wrote."""
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


@pytest.fixture
async def site(tmp_path: Path) -> Site:
    made = Site(tmp_path / "keys")
    await made.watch.look()
    return made


WRONG = ("sk-nobody-0123456789", ALICE[:-1], "", "ä")


@pytest.mark.parametrize("path", [*EVERY, "/nowhere"])
@pytest.mark.parametrize(
    "shown", [None, *map(basic, WRONG), "Basic ?", f"Basic {ALICE}", "Bearer x", f"Digest {ALICE}"]
)
async def test_without_a_good_key_nothing_is_shown(site: Site, path: str, shown: str) -> None:
    answer = await site.get(path, shown)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")  # so that a browser asks
    assert "llama" not in answer.text and "sla" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("shown", [f"Bearer {ALICE}", basic(BOB)])
async def test_who_shows_a_key_sees_it_until_the_key_is_gone(site: Site, shown: str) -> None:
    for path in EVERY:
        assert (await site.get(path, shown)).status_code == 200
    assert (await site.get("/", shown)).text == Page.shipped().html
    assert (await site.get("/nowhere", shown)).status_code == 404
    site.file.write_text("carol sk-carol-0123456789")
    site.now_s += 1.0
    assert (await site.get("/api/fleet", shown)).status_code == 401


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
