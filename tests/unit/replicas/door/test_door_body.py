"""Bodies at the door: read once, bounded, and handed on as they came."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from replicas.admission.asgi import BODY
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security

PATH = "/v1/completions"


async def _answer(request: Request) -> Response:
    body = await request.body()
    known = request.scope[BODY]
    return JSONResponse([body.decode("latin-1"), known.fields, known.size_bytes])


def client_of(**limits: Any) -> httpx.AsyncClient:
    door = Door(Rules(parse_security({"limits": limits})))
    app = Starlette(routes=[Route("/{path:path}", _answer, methods=["POST"])])
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
    async with client_of() as client:
        for content in (body, _parts(body[:7], body[7:])):
            answer = await client.post(PATH, content=content)
            assert answer.json() == [body.decode("latin-1"), fields, len(body)]


async def test_what_is_nested_too_deeply_to_be_read_is_refused() -> None:
    async with client_of() as client:
        answer = await client.post(PATH, content=b"[" * 100_000)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body")


async def test_a_second_type_hides_no_json() -> None:
    types = [("content-type", "application/json"), ("content-type", "multipart/x")]
    async with client_of(max_n=2) as client:
        for headers in (types, types[::-1], [("content-type", "TEXT/plain")]):
            answer = await client.post(PATH, content=b'{"n": 100}', headers=headers)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


async def test_what_is_no_json_by_its_type_is_not_parsed() -> None:
    async with client_of() as client:
        answer = await client.post(PATH, files={"file": b"{}"})
    assert answer.json()[1] == {}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_long_is_one_413(chunked: bool) -> None:
    body = b'{"prompt": "' + b"a" * 2000 + b'"}'
    content = _parts(*(body[i : i + 100] for i in range(0, len(body), 100))) if chunked else body
    async with client_of(max_body_mb=0.001) as client:
        answer = await client.post(PATH, content=content)
        fits = await client.post(PATH, content=body[:1000])
    assert (answer.status_code, fits.status_code) == (413, 200)
    error = answer.json()["error"]
    assert error["message"] == "body: longer than the 1000 bytes that are allowed"
    assert (error["param"], error["code"], error["type"]) == ("body", 413, "invalid_request_error")


async def test_a_field_over_its_limit_is_a_400_that_names_it() -> None:
    async with client_of(max_n=4) as client:
        answer = await client.post(PATH, content=b'{"\\u006e": "5"}')
    error = answer.json()["error"]
    said = "n: '5' is not allowed: at most 4 (security.limits.max_n of this server)"
    assert (answer.status_code, error["param"], error["message"]) == (400, "n", said)


async def test_a_limit_on_tokens_is_written_into_a_body_without_one() -> None:
    async with client_of(max_tokens=9) as client:
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
