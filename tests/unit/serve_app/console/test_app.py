"""The console over HTTP, without a network: every route, every refusal."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from serve_app.console.app import LONGEST_NAME, Page, console_app
from serve_app.console.view import Deployment
from serve_app.console.watch import Watch
from tests.unit.serve_app.snapshots import fleet


async def read() -> tuple[dict[str, Any], Sequence[Deployment]]:
    return fleet(), []


@pytest.fixture(params=["", "/console"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[httpx.AsyncClient]:
    """Mounted at the root, and where Ray Serve mounts it."""
    watch = Watch(read)
    await watch.look()
    transport = httpx.ASGITransport(console_app(watch), root_path=request.param)
    async with httpx.AsyncClient(
        transport=transport, base_url=f"http://here{request.param}"
    ) as made:
        yield made


async def test_the_fleet_and_each_part_of_it(client: httpx.AsyncClient) -> None:
    known = (await client.get("/api/fleet")).json()
    for one in known["replicas"]:
        asked = {"group": one["group"], "replica": one["replica"]}
        answer = await client.get("/api/series", params=asked)
        assert answer.json()["replica"] == one["replica"]
        assert len(answer.json()["series"]["unix_s"]) == 1
        newer = {**asked, "after": str(known["read_unix_s"])}
        assert (await client.get("/api/series", params=newer)).json()["series"]["unix_s"] == []
    answer = await client.get("/api/series", params={"group": known["models"][0]["group"]})
    assert answer.json()["series"]["replicas"] == [1]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"group": ""}, 400),
        ({"group": "x" * (LONGEST_NAME + 1)}, 400),
        ({"group": "sla", "replica": "x" * (LONGEST_NAME + 1)}, 400),
        ({"group": "sla", "after": "soon"}, 400),
        ({"group": "sla", "after": "nan"}, 400),
        ({"group": "sla", "after": "-inf"}, 400),
        ({"group": "nobody"}, 404),
        ({"group": "sla", "replica": "nobody"}, 404),
    ],
)
async def test_what_cannot_be_is_refused_in_a_line(
    client: httpx.AsyncClient, query: dict[str, str], status: int
) -> None:
    answer = await client.get("/api/series", params=query)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize("path", ["/", "/api/fleet", "/api/series?group=sla"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
async def test_nothing_can_be_changed(client: httpx.AsyncClient, path: str, method: str) -> None:
    assert (await client.request(method, path)).status_code == 405


async def test_every_answer_has_the_same_guard(client: httpx.AsyncClient) -> None:
    for path in ("/", "/api/fleet", "/api/series", "/nowhere"):
        headers = (await client.get(path)).headers
        assert headers["content-security-policy"] == Page.shipped().policy
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
