"""What a client is told through HAProxy of what is too large; who reaches HAProxy's own ports.

No cluster is started: Ray's own code writes HAProxy's configuration, and the door stands before an
app that answers.
"""

import asyncio
import contextlib
import socket
import stat
from collections.abc import AsyncIterator

import aiohttp
import pytest
import uvicorn
from openai import APIStatusError
from ray.serve._private import haproxy
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security
from serve_app.haproxy import ADMIN_MODE, DEFAULTS, STATUS_BIND
from tests.ray.test_contract_haproxy import Start, start

__all__ = ["start"]


async def _answer(request: Request) -> JSONResponse:
    await request.body()
    return JSONResponse({"id": "c", "object": "o", "created": 0, "model": "m", "choices": []})


async def _healthy(request: Request) -> JSONResponse:
    return JSONResponse("success")  # as Ray Serve answers before any app does


def app() -> Starlette:
    """An app behind the door, which takes bodies of up to 1 MB."""
    inner = Starlette(routes=[Route("/v1/completions", _answer, methods=["POST"])])
    rules = Rules(parse_security({"limits": {"max_body_mb": 1}}))
    inner.add_middleware(DoorMiddleware, door=Door(rules))
    return Starlette(routes=[Route("/-/healthz", _healthy), Mount("/", inner)])


@contextlib.asynccontextmanager
async def replica(port: int) -> AsyncIterator[None]:
    """A server at this port."""
    server = uvicorn.Server(uvicorn.Config(app(), port=port, log_level="error", lifespan="off"))
    server.capture_signals = contextlib.nullcontext
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells nobody
        await asyncio.sleep(0.01)
    yield
    server.should_exit = True
    await task


def test_what_is_changed_stands_in_what_ray_writes() -> None:
    template = haproxy.HAPROXY_CONFIG_TEMPLATE
    assert len(STATUS_BIND.findall(template)) == 2
    assert len(ADMIN_MODE.findall(template)) == len(DEFAULTS.findall(template)) == 1


async def test_a_body_that_is_too_long_is_a_413_at_a_stock_client(start: Start) -> None:
    stack = await start("gone")
    async with replica(stack.replicas[0].port), stack.client(retries=100) as client:
        # HAProxy has found the replica then; the test's own time limit ends the wait.
        await client.completions.create(model="m", prompt="a")
        once = client.with_options(max_retries=0)
        for megabytes in (2, 20):
            with pytest.raises(APIStatusError) as caught:
                await once.completions.create(model="m", prompt="a" * (megabytes * 1_000_000))
            assert (caught.value.status_code, caught.value.body["param"]) == (413, "body")
        again = await client.completions.create(model="m", prompt="a" * 900_000)
    assert again.id == "c"


def _raw(port: int, request: bytes) -> bytes:
    """What stands in the socket of a client that sent this, reset or not."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port)) as one, contextlib.suppress(OSError):
        with contextlib.suppress(OSError):
            one.sendall(request)
        while piece := one.recv(65_536):
            answer += piece
    return answer


async def test_headers_beyond_its_buffer_are_a_400_of_haproxys_own(start: Start) -> None:
    # Its parser answers before any rule or errorfile is read; up to there a replica says 431. It
    # closes with headers unread, so that a client which still sends may see a reset instead.
    stack = await start("answers")
    lines = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nX-Big: %b\r\n\r\n" % (b"y" * 200_000)
    answer = await asyncio.to_thread(_raw, stack.api.cfg.http_options.port, lines)
    assert answer.startswith(b"HTTP/1.1 400 Bad request\r\n")
    assert stack.replicas[0].asked == 0


async def test_statistics_and_metrics_are_for_this_machine_and_admin_for_this_user(
    start: Start,
) -> None:
    stack = await start("answers")
    config = stack.api.cfg
    paths = {config.metrics_port: config.metrics_uri, config.stats_port: config.stats_uri}
    async with aiohttp.ClientSession() as session:
        for port, path in paths.items():
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(f"http://127.0.0.2:{port}{path}")
    admin = stack.folder / "admin.sock"
    assert stat.S_IMODE(admin.stat().st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(admin))  # Ray's manager, which is of this user, still gets in
    assert await stack.api.is_running()
