"""Keys at the door: who comes in, as whom, how often at once, and what the app hears of it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from controller.errors import ConfigError
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.paths import ALWAYS
from replicas.door.settings import parse_security

ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789=="
KEYS = f"alice {ALICE}\nbob {BOB} classes=batch,standard max_in_flight=1\n"


class Behind:
    """A door with keys, and an app that shows what reached it and waits while it is told to."""

    def __init__(self, file: Path) -> None:
        self.counted: list[tuple[str, str]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.inside = 0
        block = {"keys": {"file": str(file)}, "extra_paths": ["/v1/realtime"]}
        rules = Rules(parse_security(block), lambda: 0.0)
        self.door = Door(rules, lambda key, outcome: self.counted.append((key, outcome)))
        routes = [
            WebSocketRoute("/v1/realtime", self._talk),
            Route("/{path:path}", self._answer, methods=["GET", "POST"]),
        ]
        self.app = Starlette(routes=routes)
        self.app.add_middleware(DoorMiddleware, door=self.door)
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://r")

    async def _answer(self, request: Request) -> Response:
        self.inside += 1
        await self.go_on.wait()
        return JSONResponse(dict(request.headers))

    async def _talk(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    async def ask(self, key: str | None, path: str = "/v1/models", **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        method = "GET" if path in ("/v1/models", "/health") else "POST"
        return await self.client.request(method, path, headers={**headers, **more})


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    file = tmp_path / "keys"
    file.write_text(KEYS)
    yield (made := Behind(file))
    assert not made.door._inside


async def test_who_has_a_key_comes_in_and_the_key_goes_no_further(behind: Behind) -> None:
    answer = await behind.ask(ALICE)
    assert answer.status_code == 200
    assert "authorization" not in answer.json()
    assert "x-brimful-classes" not in answer.json()
    assert behind.counted == [("alice", "let_in")]
    lower = await behind.client.get("/v1/models", headers={"AUTHORIZATION": f"bearer {BOB}"})
    assert lower.json()["x-brimful-classes"] == "batch,standard"


@pytest.mark.parametrize(
    ("authorization", "reason", "challenge"),
    [
        (None, "no_key", "Bearer"),
        ("", "no_key", "Bearer"),
        ("Bearer", "no_key", "Bearer"),
        ("Bearer ", "no_key", "Bearer"),
        (ALICE, "no_key", "Bearer"),
        (f"Basic {ALICE}", "no_key", "Bearer"),
        (f"Bearer {ALICE}x", "wrong_key", 'Bearer error="invalid_token"'),
        (f"Bearer {ALICE} {BOB}", "wrong_key", 'Bearer error="invalid_token"'),
        ("Bearer \xff\xfe", "wrong_key", 'Bearer error="invalid_token"'),
        ("Bearer -", "wrong_key", 'Bearer error="invalid_token"'),
    ],
)
async def test_who_has_none_is_told_so_as_openai_does(behind, authorization, reason, challenge):
    headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
    answer = await behind.client.get("/v1/models", headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (401, "authentication_error", 401)
    assert answer.headers["www-authenticate"] == challenge
    assert answer.headers["x-brimful-reason"] == reason
    assert ALICE not in answer.text
    assert behind.counted == [("none", reason)]
    assert behind.inside == 0


async def test_anthropics_clients_send_theirs_in_a_header_of_its_own(behind: Behind) -> None:
    block = {"extra_paths": ["POST /v1/messages"]}
    behind.door.rules.paths = Rules(parse_security(block)).paths
    served = await behind.client.post("/v1/messages", headers={"X-Api-Key": BOB})
    assert served.json()["x-brimful-classes"] == "batch,standard"
    assert "x-api-key" not in served.json()
    wrong = await behind.client.post("/v1/messages", headers={"x-api-key": f"{BOB}x"})
    none = await behind.client.post("/v1/messages", headers={"x-api-key": ""})
    assert (wrong.status_code, none.status_code) == (401, 401)
    assert "`x-api-key: KEY`" in none.text
    # Where both are there, the one that all other clients send counts.
    both = {"x-api-key": BOB, "authorization": f"Bearer {ALICE}"}
    await behind.client.post("/v1/messages", headers=both)
    two = [("x-api-key", BOB), ("x-api-key", ALICE)]
    assert (await behind.client.post("/v1/messages", headers=two)).status_code == 401
    counted = [("bob", "let_in"), ("none", "wrong_key"), ("none", "no_key"), ("alice", "let_in")]
    assert behind.counted == [*counted, ("none", "no_key")]


@pytest.mark.parametrize("authorization", ["", "Basic YTpi"])
async def test_a_header_without_a_key_counts_before_another_with_one(
    behind: Behind, authorization: str
) -> None:
    both = {"x-api-key": BOB, "authorization": authorization}
    assert (await behind.client.get("/v1/models", headers=both)).status_code == 401
    padded = {"x-api-key": f"{BOB} "}
    assert (await behind.client.get("/v1/models", headers=padded)).status_code == 200


async def test_two_keys_are_none(behind: Behind) -> None:
    both = [("authorization", f"Bearer {ALICE}"), ("authorization", f"Bearer {BOB}")]
    assert (await behind.client.get("/v1/models", headers=both)).status_code == 401


async def test_health_needs_no_key_and_a_path_that_is_not_served_has_none(behind: Behind) -> None:
    assert (await behind.ask(None, "/health")).status_code == 200
    assert (await behind.ask(None, "/tokenize")).status_code == 404
    assert (await behind.ask(ALICE, "/tokenize")).status_code == 404


async def test_a_client_cannot_give_itself_classes(behind: Behind) -> None:
    answer = await behind.ask(BOB, **{"X-Brimful-Classes": "gold"})
    assert answer.json()["x-brimful-classes"] == "batch,standard"
    answer = await behind.ask(ALICE, **{"X-Brimful-Classes": "gold"})
    assert "x-brimful-classes" not in answer.json()


async def test_a_key_has_so_many_requests_at_once(behind: Behind) -> None:
    behind.go_on.clear()
    first = asyncio.create_task(behind.ask(BOB, "/v1/completions"))
    while not behind.inside:  # noqa: ASYNC110 - the test's own time limit ends it
        await asyncio.sleep(0)
    busy = await behind.ask(BOB, "/v1/completions")
    assert (busy.status_code, busy.headers["x-brimful-reason"]) == (429, "key_busy")
    assert float(busy.headers["retry-after-ms"]) >= 500
    assert behind.counted[-1] == ("bob", "key_busy")
    behind.go_on.set()
    assert (await first).status_code == 200
    assert (await behind.ask(BOB)).status_code == 200


async def test_a_refused_body_gives_its_place_back(behind: Behind) -> None:
    for _ in range(2):
        headers = {"authorization": f"Bearer {BOB}"}
        answer = await behind.client.post("/v1/completions", json={"n": 1000}, headers=headers)
        assert answer.status_code == 400
    assert behind.counted == [("bob", "bad_request")] * 2


async def test_rules_are_changed_as_a_whole_or_not_at_all(behind: Behind, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        behind.door.rules = Rules(parse_security({"keys": {"file": str(tmp_path / "none")}}))
    assert (await behind.ask(ALICE)).status_code == 200
    behind.door.rules = Rules(parse_security({}))
    assert (await behind.ask(None)).status_code == 200


def test_a_websocket_needs_a_key_too(behind: Behind) -> None:
    client = TestClient(behind.app)
    with pytest.raises(WebSocketDisconnect), client.websocket_connect("/v1/realtime"):
        pass
    with client.websocket_connect("/v1/realtime", headers={"authorization": f"Bearer {ALICE}"}):
        pass


@pytest.mark.parametrize("path", [line.partition(" ")[2] for line in ALWAYS if "POST /v1" in line])
async def test_the_classes_of_a_key_go_along_on_every_way_in(behind: Behind, path: str) -> None:
    answer = await behind.ask(BOB, path)
    assert answer.json()["x-brimful-classes"] == "batch,standard"
