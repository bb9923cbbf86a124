"""What comes through the door to an app behind it, and what is answered instead."""

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security


async def _answer(request: Request) -> Response:
    return JSONResponse({"path": request.url.path, "headers": sorted(request.headers)})


async def _talk(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text("hello")
    await socket.close()


def app_of(door: Door, prefix: str = "") -> Any:
    """An app that answers every path by every method, and allows every origin."""
    every = Route(
        "/{path:path}",
        _answer,
        methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"],
    )
    cors = Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"])
    inner = Starlette(routes=[WebSocketRoute("/v1/realtime", _talk), every], middleware=[cors])
    inner.add_middleware(DoorMiddleware, door=door)
    return Starlette(routes=[Mount(prefix, inner)]) if prefix else inner


def client_of(door: Door, prefix: str = "") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app_of(door, prefix))
    return httpx.AsyncClient(transport=transport, base_url="http://r")


def door_of(**block: Any) -> Door:
    return Door(Rules(parse_security(block)))


async def test_what_is_served_comes_through() -> None:
    async with client_of(door_of()) as client:
        for path in ("/health", "/v1/models", "/v1/models/org/name"):
            assert (await client.get(path)).json()["path"] == path
        assert (await client.post("/v1/completions", json={})).status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/invocations", "/a%00b"])
async def test_anything_else_is_a_404_as_openai_has_it(path: str) -> None:
    async with client_of(door_of()) as client:
        answer = await client.post(path, json={})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (404, 404, "not_found_error")
    assert error["message"].startswith("nothing is served at this path: '/")
    assert answer.headers["x-brimful-reason"] == "no_such_path"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_another_method_is_a_405_that_names_those_that_are_allowed(method: str) -> None:
    async with client_of(door_of()) as client:
        answer = await client.request(method, "/v1/completions")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["param"] == "method"


async def test_a_path_that_was_opened_while_it_runs_is_served() -> None:
    door = door_of()
    async with client_of(door) as client:
        assert (await client.get("/version")).status_code == 404
        door.rules = Rules(parse_security({"extra_paths": ["GET /version"]}))
        assert (await client.get("/version")).status_code == 200
        assert (await client.post("/version")).status_code == 405


async def test_no_page_of_another_site_may_read_an_answer() -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    async with client_of(door_of()) as client:
        answer = await client.get("/v1/models", headers=headers)
        asked_first = await client.options("/v1/completions", headers=headers)
    assert answer.status_code == 200
    assert asked_first.status_code == 405
    for one in (answer, asked_first):
        assert not [name for name in one.headers if name.startswith("access-control")]


async def test_what_only_we_may_say_to_a_replica_is_taken_from_clients() -> None:
    async with client_of(door_of()) as client:
        answer = await client.get("/v1/models", headers={"X-Brimful-Classes": "a", "x-own": "b"})
    assert "x-own" in answer.json()["headers"]
    assert "x-brimful-classes" not in answer.json()["headers"]


async def test_an_application_with_a_prefix_is_judged_by_the_rest_of_its_paths() -> None:
    async with client_of(door_of(), "/qwen") as client:
        assert (await client.get("/qwen/v1/models")).status_code == 200
        assert (await client.get("/qwen/version")).status_code == 404


def test_a_websocket_is_closed_where_its_path_is_not_served() -> None:
    closed = TestClient(app_of(door_of()))
    with pytest.raises(WebSocketDisconnect), closed.websocket_connect("/v1/realtime"):
        pass
    opened = TestClient(app_of(door_of(extra_paths=["/v1/realtime"])))
    with opened.websocket_connect("/v1/realtime") as socket:
        assert socket.receive_text() == "hello"


def test_an_app_is_still_started_and_stopped() -> None:
    with TestClient(app_of(door_of())) as client:
        assert client.get("/health").status_code == 200
