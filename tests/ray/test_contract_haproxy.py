"""What ``serve_app.haproxy`` changes in the configuration that Ray 2.60 writes, by HAProxy itself.

No cluster is started: Ray's own code writes the configuration and starts HAProxy, before servers
that answer, die or are not there.
"""

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
import uvicorn
from anthropic import APIStatusError as AnthropicError
from anthropic import AsyncAnthropic
from openai import APIConnectionError, APIStatusError, NotFoundError
from ray.serve._private import haproxy
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from replicas.door.auth import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security
from serve_app.haproxy import (
    ADMIN_MODE,
    ASKED,
    BEFORE,
    DEFAULTS,
    ENVIRONMENT,
    ERROR_FILE,
    NO_ROUTE,
    ROUTER_FAILED,
    ROUTES,
    STATUS_BIND,
)
from serve_app.haproxy_watch import AGAIN_PID, PID, Ended, wait_for
from tests.ray.haproxy_stack import BUFSIZE, Stack, start

__all__ = ["start"]  # a fixture


def test_ray_takes_how_long_answers_outlast_a_reload_and_keeps_ports_as_long():
    code = (
        "from ray.serve._private import constants, haproxy;"
        " print(haproxy.RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S, constants.RAY_SERVE_PORT_QUARANTINE_S)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | ENVIRONMENT, capture_output=True, text=True
    )
    assert said.stdout.split() == ["1800", "1830.0"], said.stderr
    assert "hard-stop-after {{ config.hard_stop_after_s }}s" in haproxy.HAPROXY_CONFIG_TEMPLATE


def test_what_is_changed_stands_in_what_ray_writes():
    template = haproxy.HAPROXY_CONFIG_TEMPLATE
    assert len(ERROR_FILE.findall(template)) == 3
    assert len(NO_ROUTE.findall(template)) == len(DEFAULTS.findall(template)) == 1
    assert (len(STATUS_BIND.findall(template)), len(ADMIN_MODE.findall(template))) == (2, 1)
    assert len(ROUTER_FAILED.findall(template)) == template.count(ROUTES) == 1
    lua = haproxy._load_lua_template().template
    assert lua.count(ASKED) == lua.count(BEFORE) == 1
    assert lua.count("local function call_router(router, ") == 1
    # Where no router chose, the backend without one comes next.
    assert "use_backend {{ backend.name or 'unknown' }} if is_" in template


async def test_a_request_whose_replica_dies_without_a_byte_is_served_by_another(start):
    stack = await start("dies", "answers")
    size = BUFSIZE - 8192
    answers = [await stack.post(size) for _ in range(4)]
    assert [status for status, _ in answers] == [200] * 4
    assert stack.replicas[0].asked >= 1


async def test_what_does_not_fit_into_the_buffer_is_told_to_come_again(start):
    stack = await start("dies", "dies")
    status, headers = await stack.post(2 * BUFSIZE)
    assert (status, headers["retry-after-ms"]) == (503, "1000")


@pytest.mark.parametrize(("router", "asked"), [(None, 0), ("dies", 1)])
async def test_a_router_that_does_not_answer_is_passed_by_and_left_alone_for_a_while(
    start, router, asked
):
    stack = await start("answers", "answers", router=router)
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert stack.router.asked == asked


async def test_a_router_that_may_have_headers_to_add_is_not_passed_by(start, monkeypatch):
    monkeypatch.setenv("RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY", "1")
    stack = await start("answers", router="dies")
    assert (await stack.post())[0] == 503


async def test_without_our_command_ray_answers_503_for_its_router(start):
    stack = await start("answers", router="dies", ours=False)
    assert (await stack.post())[0] == 503
    assert "brimful" not in stack.configuration


@pytest.mark.parametrize("name", ["x-request-timeout-seconds", "x-first-token-timeout-seconds"])
async def test_a_deadline_reaches_a_replica_under_a_name_that_ray_does_not_read(start, name):
    stack = await start("answers", router="dies")
    assert (await stack.post(headers={name: "3"}))[0] == 200
    (replica,) = stack.replicas
    assert "\r\nx-first-token-timeout-seconds: 3\r\n" in replica.head
    assert "x-request-timeout-seconds" not in replica.head


async def refused(stack: Stack) -> APIStatusError:
    """What a stock client makes of the refusal."""
    async with stack.client(retries=0) as client:
        with pytest.raises(APIStatusError) as caught:
            await client.completions.create(model="m", prompt="a")
    return caught.value


async def test_where_no_replica_is_left_a_stock_client_is_told_to_come_again(start):
    error = await refused(await start("gone", "gone"))
    assert (error.status_code, error.type) == (503, "service_unavailable")
    assert error.response.headers["retry-after-ms"] == "1000"
    assert error.response.headers["x-brimful-reason"] == "no_replica"


@pytest.mark.parametrize(
    ("prefix", "status", "kind"),
    [("/", 503, "service_unavailable"), ("/llm", 404, "not_found_error")],
)
async def test_of_haproxys_own_errors_anthropics_client_reads_type_and_message(
    start, prefix, status, kind
):
    stack = await start("gone", prefix=prefix)
    asked = {"max_tokens": 4, "messages": [{"role": "user", "content": "a"}]}
    async with AsyncAnthropic(base_url=stack.url, api_key="-", max_retries=0) as client:
        with pytest.raises(AnthropicError) as caught:
            await client.messages.create(model="m", **asked)
    error = caught.value
    assert (error.status_code, error.type, error.body["type"]) == (status, kind, "error")
    assert error.body["error"]["message"]


async def test_while_no_application_is_up_a_stock_client_is_told_to_come_again(start):
    stack = await start("answers", router="dies")
    stack.api.set_backend_configs({})
    await stack.api.reload()
    error = await refused(stack)
    assert (error.status_code, error.response.headers["retry-after"]) == (503, "1")


async def test_a_path_of_no_application_is_a_404_in_openais_shape(start):
    error = await refused(await start("answers", prefix="/llm"))
    assert isinstance(error, NotFoundError) and error.body["type"] == "not_found_error"


async def test_a_haproxy_that_is_killed_serves_again_before_ray_notices(start):
    stack = await start("answers", "answers", router="dies")
    assert (await stack.post())[0] == 200
    stack.api._proc.kill()
    async with stack.client() as client:  # its two repeats are enough
        await client.completions.create(model="m", prompt="a")
    assert not await stack.api.is_running()  # so Ray will start the next one
    await stack.start_anew()
    assert (await stack.post())[0] == 200
    assert await stack.api.is_running()


async def test_a_haproxy_outlives_its_manager_until_the_next_one_takes_over(start):
    stack = await start("answers", "answers", router="dies")
    mine = stack.api._proc
    command = [str(stack.folder / "haproxy"), "-db", "-f", str(stack.folder / "haproxy.cfg")]
    code = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    manager = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *command, start_new_session=True
    )
    await mine.wait()  # the next one's has taken its place
    orphan = Ended(int((stack.folder / PID).read_text()))
    os.killpg(manager.pid, signal.SIGKILL)  # as the raylet does
    await manager.wait()
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    await stack.start_anew()
    await asyncio.to_thread(wait_for, orphan)
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert stack.api._proc.pid == int((stack.folder / PID).read_text())


async def test_a_reload_starts_nothing_in_the_place_of_the_one_that_ends(start):
    stack = await start("answers", "answers", router="dies")
    first = stack.api._proc
    await stack.api.reload()
    await first.wait()
    assert stack.api._proc is not first
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert not (stack.folder / AGAIN_PID).exists()


async def test_a_stream_whose_replica_is_killed_is_an_error_at_a_stock_client(start):
    # HAProxy cannot add an event to it: the chunked body ends without its last chunk.
    stack = await start("breaks")
    async with stack.client() as client:
        chunks = aiter(await client.completions.create(model="m", prompt="a", stream=True))
        assert (await anext(chunks)).choices[0].text == "a"
        with pytest.raises(APIConnectionError) as caught:
            await anext(chunks)
    assert "incomplete chunked read" in str(caught.value.__cause__)


# --- what is too large, and who reaches HAProxy's own ports


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


async def test_a_body_that_is_too_long_is_a_413_at_a_stock_client(start):
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


async def test_headers_beyond_its_buffer_are_a_400_of_haproxys_own(start):
    # Its parser answers before any rule or errorfile is read; up to there a replica says 431. It
    # closes with headers unread, so that a client which still sends may see a reset instead.
    stack = await start("answers")
    lines = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nX-Big: %b\r\n\r\n" % (b"y" * 200_000)
    answer = await asyncio.to_thread(_raw, stack.api.cfg.http_options.port, lines)
    assert answer.startswith(b"HTTP/1.1 400 Bad request\r\n")
    assert stack.replicas[0].asked == 0


async def test_statistics_and_metrics_are_for_this_machine_and_admin_for_this_user(start):
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
