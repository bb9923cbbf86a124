"""What ``serve_app.haproxy`` changes in the configuration that Ray 2.60 writes, by HAProxy itself.

No cluster is started: Ray's own code writes the configuration and starts HAProxy, before servers
that answer, die or are not there.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from ray.serve._private import haproxy
from ray.serve.config import HTTPOptions

from serve_app.haproxy import (
    ASKED,
    BEFORE,
    ENVIRONMENT,
    ERROR_FILE,
    ROUTER_FAILED,
    ROUTES,
    write_launcher,
)
from serve_app.haproxy_watch import AGAIN_PID, PID
from tests.ray.conftest import free_ports

HARD_STOP = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
BUFSIZE = int(ENVIRONMENT["RAY_SERVE_HAPROXY_TUNE_BUFSIZE"])
COMPLETION = b'{"id": "c", "object": "text_completion", "created": 0, "model": "m", "choices": []}'
CHUNK = b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'


class Server:
    """An HTTP server that does one thing to every POST.

    Attributes:
        asked: how many there were.
        does: ``answers``; ``dies`` without a byte; ``breaks`` after the first event of a stream.
    """

    def __init__(self, port: int, does: str = "answers") -> None:
        self.port, self.does, self.asked = port, does, 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if head.startswith("get"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    continue
                length = int(head.partition("content-length:")[2].partition("\r\n")[0])
                await reader.readexactly(length)
                self.asked += 1
                if self.does == "answers":
                    writer.write(_response(COMPLETION))
                    continue
                if self.does == "breaks":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
                    writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
                    writer.write(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))
                    await writer.drain()
                    await asyncio.sleep(0.1)  # so that HAProxy has sent it on
                writer.transport.abort()
                return


def _response(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


class Stack:
    """HAProxy as Ray Serve starts it, before two replicas and their router.

    Attributes:
        api: Ray's, for HAProxy's process.
        configuration: as HAProxy read it.
    """

    def __init__(
        self, api: haproxy.HAProxyApi, replicas: list[Server], router: Server, folder: Path
    ) -> None:
        self.api, self.replicas, self.router, self.folder = api, replicas, router, folder
        self.url = f"http://127.0.0.1:{api.cfg.http_options.port}"

    async def start_anew(self) -> None:
        """As Ray's next manager does: it knows no application yet."""
        known, self.api.backend_configs = self.api.backend_configs, {}
        self.api._proc = None
        await self.api.start()
        self.api.backend_configs = known

    @property
    def configuration(self) -> str:
        return (self.folder / "haproxy.cfg").read_text()

    async def post(self, size: int = 10) -> tuple[int, aiohttp.typedefs.LooseHeaders]:
        body = b"x" * size
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/v1/completions", data=body) as answer,
        ):
            await answer.read()
            return answer.status, answer.headers

    def client(self, retries: int = 2) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="-", max_retries=retries)


Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Start]:
    """Starts a ``Stack``: what each replica does, and whether the router is there and answers."""
    async with contextlib.AsyncExitStack() as stack:

        async def run(*does: str, router: str | None = None, ours: bool = True) -> Stack:
            launcher = write_launcher(tmp_path / "haproxy")
            binary = str(launcher) if ours else ""
            monkeypatch.setattr(haproxy, "RAY_SERVE_HAPROXY_BINARY_PATH", binary)
            ports = free_ports(4 + len(does))
            replicas = [Server(port, what) for port, what in zip(ports[4:], does, strict=True)]
            asked = Server(ports[3], router or "")
            listening = [*(r for r in replicas if r.does != "gone"), *([asked] if router else [])]
            for one in listening:
                server = await asyncio.start_server(one.handle, "127.0.0.1", one.port)
                stack.callback(server.close)
            api = _api(tmp_path, ports[:3], replicas, asked)
            await api.start()
            stack.push_async_callback(api.stop)
            # It is not started again then.
            stack.callback((tmp_path / PID).unlink, missing_ok=True)
            return Stack(api, replicas, asked, tmp_path)

        yield run


def _api(
    folder: Path, ports: list[int], replicas: list[Server], router: Server
) -> haproxy.HAProxyApi:
    def server(name: str, one: Server) -> haproxy.ServerConfig:
        return haproxy.ServerConfig(name, "127.0.0.1", one.port, name)

    config = haproxy.HAProxyConfig(
        http_options=HTTPOptions(host="127.0.0.1", port=ports[0]),
        metrics_port=ports[1],
        stats_port=ports[2],
        socket_path=str(folder / "admin.sock"),
        server_state_base=str(folder),
        server_state_file=str(folder / "state"),
        metrics_enabled=False,
        nbthread=1,
        retry_on=ENVIRONMENT["RAY_SERVE_HAPROXY_RETRY_ON"],
        bufsize=BUFSIZE,
        hard_stop_after_s=int(ENVIRONMENT[HARD_STOP]),
    )
    backend = haproxy.BackendConfig(
        name="http-app",
        path_prefix="/",
        app_name="app",
        servers=[server(f"replica{i}", one) for i, one in enumerate(replicas)],
        ingress_request_router_servers=[server("router", router)],
    )
    api = haproxy.HAProxyApi(config, {}, config_file_path=str(folder / "haproxy.cfg"))
    api.set_backend_configs({backend.name: backend})
    return api


def test_ray_takes_how_long_answers_outlast_a_reload_and_keeps_ports_as_long() -> None:
    code = (
        "from ray.serve._private import constants, haproxy;"
        " print(haproxy.RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S, constants.RAY_SERVE_PORT_QUARANTINE_S)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | ENVIRONMENT, capture_output=True, text=True
    )
    assert said.stdout.split() == ["1800", "1830.0"], said.stderr
    assert "hard-stop-after {{ config.hard_stop_after_s }}s" in haproxy.HAPROXY_CONFIG_TEMPLATE


def test_what_is_changed_stands_in_what_ray_writes() -> None:
    template = haproxy.HAPROXY_CONFIG_TEMPLATE
    assert len(ERROR_FILE.findall(template)) == 3
    assert len(ROUTER_FAILED.findall(template)) == template.count(ROUTES) == 1
    lua = haproxy._load_lua_template().template
    assert lua.count(ASKED) == lua.count(BEFORE) == 1
    assert lua.count("local function call_router(router, ") == 1
    # Where no router chose, the backend without one comes next.
    assert "use_backend {{ backend.name or 'unknown' }} if is_" in template


async def test_a_request_whose_replica_dies_without_a_byte_is_served_by_another(
    start: Start,
) -> None:
    stack = await start("dies", "answers")
    size = BUFSIZE - 8192
    answers = [await stack.post(size) for _ in range(4)]
    assert [status for status, _ in answers] == [200] * 4
    assert stack.replicas[0].asked >= 1


async def test_what_does_not_fit_into_the_buffer_is_told_to_come_again(start: Start) -> None:
    stack = await start("dies", "dies")
    status, headers = await stack.post(2 * BUFSIZE)
    assert (status, headers["retry-after-ms"]) == (503, "1000")


async def test_a_router_that_is_not_there_is_passed_by(start: Start) -> None:
    stack = await start("answers", "answers")
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4


async def test_a_router_that_does_not_answer_is_left_alone_for_a_while(start: Start) -> None:
    stack = await start("answers", "answers", router="dies")
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert stack.router.asked == 1


async def test_a_router_that_may_have_headers_to_add_is_not_passed_by(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY", "1")
    stack = await start("answers", router="dies")
    assert (await stack.post())[0] == 503


async def test_without_our_command_ray_answers_503_for_its_router(start: Start) -> None:
    stack = await start("answers", router="dies", ours=False)
    assert (await stack.post())[0] == 503
    assert "brimful" not in stack.configuration


async def test_where_no_replica_is_left_a_stock_client_is_told_to_come_again(
    start: Start,
) -> None:
    stack = await start("gone", "gone")
    async with stack.client(retries=0) as client:
        with pytest.raises(APIStatusError) as caught:
            await client.completions.create(model="m", prompt="a")
    error = caught.value
    assert error.status_code == 503
    assert error.type == "service_unavailable"
    assert error.response.headers["retry-after-ms"] == "1000"
    assert error.response.headers["x-brimful-reason"] == "no_replica"


async def test_a_haproxy_that_is_killed_serves_again_before_ray_notices(start: Start) -> None:
    stack = await start("answers", "answers", router="dies")
    assert (await stack.post())[0] == 200
    stack.api._proc.kill()
    async with stack.client() as client:  # its two repeats are enough
        await client.completions.create(model="m", prompt="a")
    assert not await stack.api.is_running()  # so Ray will start the next one
    await stack.start_anew()
    assert (await stack.post())[0] == 200
    assert await stack.api.is_running()


async def test_a_reload_starts_nothing_in_the_place_of_the_one_that_ends(start: Start) -> None:
    stack = await start("answers", "answers", router="dies")
    first = stack.api._proc
    await stack.api.reload()
    await first.wait()
    assert stack.api._proc is not first
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert not (stack.folder / AGAIN_PID).exists()


async def test_a_stream_whose_replica_is_killed_is_an_error_at_a_stock_client(
    start: Start,
) -> None:
    # HAProxy cannot add an event to it: the chunked body ends without its last chunk.
    stack = await start("breaks")
    async with stack.client() as client:
        chunks = aiter(await client.completions.create(model="m", prompt="a", stream=True))
        assert (await anext(chunks)).choices[0].text == "a"
        with pytest.raises(APIConnectionError) as caught:
            await anext(chunks)
    assert "incomplete chunked read" in str(caught.value.__cause__)
