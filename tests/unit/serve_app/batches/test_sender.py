"""What comes back of a request, whatever the server does."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from serve_app.batches.sender import Answer, Sender

URL = "/v1/completions"
Says = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers as it is told to, and keeps what it was asked."""

    address = ""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.says: Says = self.echo

    async def echo(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"n": 1}, headers={"X-Request-Id": "q"})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("authorization", "")
        self.asked.append((request.path, key, await request.json()))
        return await self.says(request)

    def tells(self, status: int, text: str, **options: Any) -> None:
        async def says(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, text=text, **options)

        self.says = says


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_post("/{path:.*}", made.handle)
    async with TestServer(app, host="127.0.0.1") as running:
        made.address = str(running.make_url("/llm/v1"))
        yield made


async def ask(server: Server, body: Any = None, key: str | None = None) -> Answer:
    sender = Sender(server.address, key, 4)
    try:
        return await sender.send(URL, {"n": 1} if body is None else body)
    finally:
        await sender.close()


async def test_a_request_is_sent_to_its_endpoint_with_the_key(server: Server) -> None:
    assert await ask(server, key="secret") == Answer(200, {"n": 1}, "q", None)
    await ask(server)
    assert server.asked == [
        ("/llm/v1/completions", "Bearer secret", {"n": 1}),
        ("/llm/v1/completions", "", {"n": 1}),
    ]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7.0), ("1.5", 1.5), ("Wed, 21 Oct 2026 07:28:00 GMT", None), (None, None)],
)
async def test_how_long_the_server_asks_to_be_left_alone(
    server: Server, said: str | None, seconds: float | None
) -> None:
    server.tells(429, "{}", headers={} if said is None else {"Retry-After": said})
    assert await ask(server) == Answer(429, {}, "", seconds)


@pytest.mark.parametrize(
    ("status", "text", "options", "told"),
    [
        (404, '{"error": {"message": "no such model"}}', {}, (404, "no such model")),
        (404, "Path '/v1/completions' not found.", {}, (0, "Path '/v1/completions' not found.")),
        (502, "<html>", {}, (502, "<html>")),
        (200, "<html>", {}, (502, "<html>")),
        (400, "[" * 100_000, {}, (400, "[" * 500)),
        (400, '{"error": {"message": "\u00e9"}}', {"charset": "latin-1"}, (400, "*")),
    ],
    ids=range(6),
)
async def test_what_is_no_json_is_told_as_an_error(
    server: Server, status: int, text: str, options: Any, told: tuple[int, str]
) -> None:
    server.tells(status, text, **options)
    answer = await ask(server)
    assert answer.status == told[0]
    assert told[1] in ("*", answer.body["error"]["message"])


async def test_a_server_that_goes_away_was_not_reached(server: Server) -> None:
    async def leaves(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return answer

    server.says = leaves
    assert (await ask(server)).status == 0
    server.address = "http://127.0.0.1:9/v1"
    assert (await ask(server)).status == 0


async def test_a_body_that_is_nested_too_deeply_is_refused_here(server: Server) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert (await ask(server, {"n": deep})).status == 400
    assert server.asked == []
