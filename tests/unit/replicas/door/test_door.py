"""What comes through the door to an app behind it, bodies and origins, and what is answered."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from controller.errors import ConfigError
from replicas.admission.asgi import BODY
from replicas.door import http
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
        "/{path:path}", _answer, methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
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


async def _body_of(request: Request) -> Response:
    body = await request.body()
    known = request.scope[BODY]
    return JSONResponse([body.decode("latin-1"), known.fields, known.size_bytes])


def limited(**limits: Any) -> httpx.AsyncClient:
    door = Door(Rules(parse_security({"limits": limits})))
    app = Starlette(routes=[Route("/{path:path}", _body_of, methods=["POST"])])
    app.add_middleware(DoorMiddleware, door=door)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://r")


async def _parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b'{"prompt": "a", "n": 2}', {"prompt": "a", "n": 2}),
        ('{"prompt": "ä"}'.encode("utf-16"), {"prompt": "ä"}),
        (b'{"\\u006e": 3}', {"n": 3}),
        (b"", {}),
        (b"{", {}),
        (b"[1]", {}),
        (b"\xff\xfe\xfd", {}),
        (b'{"n": ' + b"9" * 5000 + b"}", {}),
    ],
)
async def test_the_app_gets_the_bytes_that_came(body: bytes, fields: dict[str, Any]) -> None:
    async with limited() as client:
        for content in (body, _parts(body[:7], body[7:])):
            answer = await client.post(PATH, content=content)
            assert answer.json() == [body.decode("latin-1"), fields, len(body)]


async def test_what_is_nested_too_deeply_to_be_read_is_refused() -> None:
    async with limited() as client:
        answer = await client.post(PATH, content=b"[" * 100_000)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body")


async def test_a_second_type_hides_no_json() -> None:
    types = [("content-type", "application/json"), ("content-type", "multipart/x")]
    async with limited(max_n=2) as client:
        for headers in (types, types[::-1], [("content-type", "TEXT/plain")]):
            answer = await client.post(PATH, content=b'{"n": 100}', headers=headers)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


async def test_what_is_no_json_by_its_type_is_not_parsed() -> None:
    async with limited() as client:
        answer = await client.post(PATH, files={"file": b"{}"})
    assert answer.json()[1] == {}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_long_is_one_413(chunked: bool) -> None:
    body = b'{"prompt": "' + b"a" * 2000 + b'"}'
    content = _parts(*(body[i : i + 100] for i in range(0, len(body), 100))) if chunked else body
    async with limited(max_body_mb=0.001) as client:
        answer = await client.post(PATH, content=content)
        fits = await client.post(PATH, content=body[:1000])
    assert (answer.status_code, fits.status_code) == (413, 200)
    error = answer.json()["error"]
    assert error["message"] == "body: longer than the 1000 bytes that are allowed"
    assert (error["param"], error["code"], error["type"]) == ("body", 413, "invalid_request_error")


async def test_a_field_over_its_limit_is_a_400_that_names_it() -> None:
    async with limited(max_n=4) as client:
        answer = await client.post(PATH, content=b'{"\\u006e": "5"}')
    error = answer.json()["error"]
    said = "n: '5' is not allowed: at most 4 (security.limits.max_n of this server)"
    assert (answer.status_code, error["param"], error["message"]) == (400, "n", said)


async def test_a_limit_on_tokens_is_written_into_a_body_without_one() -> None:
    async with limited(max_tokens=9) as client:
        body, fields, size = (
            await client.post("/v1/chat/completions", json={"messages": []})
        ).json()
    assert json.loads(body) == {"messages": [], "max_completion_tokens": 9}
    assert (fields, size) == ({"messages": []}, len(body))


async def test_a_client_that_leaves_while_it_sends_is_told_to_the_app() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())

    messages = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": PATH, "headers": []}
    await DoorMiddleware(app, Door(Rules(parse_security({}))))(scope, receive, send)
    assert seen == [{"type": "http.disconnect"}]


LIMIT = 1000  # bytes


class Client:
    """One that sends parts of a body, for as long as it is read, and hears of an answer."""

    def __init__(self, parts: list[int], *, said: int | None = None, stops: bool = False) -> None:
        self.parts, self.stops = parts, stops
        self.headers = [] if said is None else [(b"content-length", str(said).encode())]
        self.read = 0
        self.status: int | None = None

    async def receive(self) -> Any:
        if self.read == len(self.parts):
            assert self.stops, "read on after the last part"
            await asyncio.Event().wait()
        self.read += 1
        more = self.stops or self.read < len(self.parts)
        body = b"x" * self.parts[self.read - 1]
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Any) -> None:
        self.status = self.status or message["status"]


async def too_long(client: Client) -> Client:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it came in")

    door = Door(Rules(parse_security({"limits": {"max_body_mb": LIMIT / 1e6}})))
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": client.headers}
    await DoorMiddleware(app, door)(scope, client.receive, client.send)
    assert client.status == 413
    return client


@pytest.mark.parametrize("said", [None, 3000])
async def test_what_is_left_of_it_is_read_to_its_end(said: int | None) -> None:
    assert (await too_long(Client([600] * 5, said=said))).read == 5


async def test_a_body_whose_last_part_was_too_much_is_read_no_further() -> None:
    assert (await too_long(Client([600, 600]))).read == 2


async def test_of_one_that_is_announced_as_far_too_long_nothing_is_read(monkeypatch):
    monkeypatch.setattr(http, "MOST_DISCARDED_BYTES", 5000)
    assert (await too_long(Client([600] * 20, said=5001))).read == 0
    assert (await too_long(Client([600] * 20, said=5000))).read == 9  # to the first byte over it


async def test_one_that_goes_on_for_ever_is_read_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_DISCARDED_BYTES", 5000)
    assert (await too_long(Client([600] * 20))).read == 9


async def test_one_that_stops_in_the_middle_is_waited_for_so_long(monkeypatch):
    monkeypatch.setattr(http, "DISCARDING_S", 0.05)
    assert (await too_long(Client([600] * 3, stops=True))).read == 3


PATH, OURS, ALLOW = "/v1/completions", "https://chat.example.com", "access-control-allow-origin"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


async def _origin(request: Request) -> Response:
    return PlainTextResponse(request.headers.get("origin", "hidden"))


def page_of(*origins: str) -> httpx.AsyncClient:
    app = Starlette(routes=[Route(PATH, _origin, methods=["POST"])])
    app.add_middleware(CORSMiddleware, allow_origins=["*"])  # as vLLM and Ray have it
    app.add_middleware(
        DoorMiddleware, door=Door(Rules(parse_security({"cors_origins": list(origins)})))
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://r")


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((), OURS, None),
        ((OURS,), OURS, OURS),
        ((OURS, "http://localhost:3000"), "http://localhost:3000", "http://localhost:3000"),
        ((OURS,), "https://evil.example.com", None),
        (("*",), "https://any.example.com", "*"),
    ],
)
async def test_a_page_may_read_answers_where_its_origin_is_named(origins, origin, allowed):
    async with page_of(*origins) as client:
        answer = await client.post(PATH, json={}, headers={"origin": origin})
        refused = await client.post("/nowhere", json={}, headers={"origin": origin})
        asked = await client.options(PATH, headers={"origin": origin, **ASKS})
    assert (answer.text, answer.headers.get(ALLOW)) == ("hidden", allowed)
    if allowed:  # a browser hides headers that are not named, Retry-After too
        assert refused.headers["access-control-expose-headers"] == "*"
    assert (refused.status_code, refused.headers.get(ALLOW)) == (404, allowed)
    assert (asked.status_code == 200, asked.headers.get(ALLOW)) == (allowed is not None, allowed)


@pytest.mark.parametrize("wrong", ["chat.example.com", f"{OURS}/", "https://A.example.com", "null"])
def test_what_no_browser_sends_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"args.security.cors_origins: .*an origin as browsers"):
        parse_security({"cors_origins": [wrong]}, "args.security")
