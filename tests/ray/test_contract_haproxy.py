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
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from anthropic import APIStatusError as AnthropicError
from anthropic import AsyncAnthropic
from openai import APIConnectionError, APIStatusError, AsyncOpenAI
from ray.serve._private import haproxy
from ray.serve.config import HTTPOptions

from serve_app.haproxy import (
    ENVIRONMENT,
    write_launcher,
)
from serve_app.haproxy_watch import PID, Ended, wait_for
from tests.ray.conftest import free_ports

HARD_STOP = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"
BUFSIZE = int(ENVIRONMENT["RAY_SERVE_HAPROXY_TUNE_BUFSIZE"])
COMPLETION = b'{"id": "c", "object": "text_completion", "created": 0, "model": "m", "choices": []}'
CHUNK = b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n'


class Server:
    """An HTTP server that does one thing to every POST.

    Attributes:
        asked: how many there were.
        head: of the last one, in lower case.
        does: ``answers``; ``dies`` without a byte; ``breaks`` after the first event of a stream.
    """

    def __init__(self, port: int, does: str = "answers") -> None:
        self.port, self.does, self.asked = port, does, 0
        self.head = ""

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
                self.head = head
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

    async def post(
        self, size: int = 10, headers: dict[str, str] | None = None
    ) -> tuple[int, aiohttp.typedefs.LooseHeaders]:
        body = b"x" * size
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}/v1/completions", data=body, headers=headers) as answer,
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

        async def run(
            *does: str, router: str | None = None, ours: bool = True, prefix: str = "/"
        ) -> Stack:
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
            api = _api(tmp_path, ports[:3], replicas, asked, prefix)
            await api.start()
            stack.push_async_callback(api.stop)
            # It is not started again then.
            stack.callback((tmp_path / PID).unlink, missing_ok=True)
            return Stack(api, replicas, asked, tmp_path)

        yield run


def _api(
    folder: Path, ports: list[int], replicas: list[Server], router: Server, prefix: str
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
        path_prefix=prefix,
        app_name="app",
        servers=[server(f"replica{i}", one) for i, one in enumerate(replicas)],
        ingress_request_router_servers=[server("router", router)],
    )
    api = haproxy.HAProxyApi(config, {}, config_file_path=str(folder / "haproxy.cfg"))
    api.set_backend_configs({backend.name: backend})
    return api


async def test_a_request_whose_replica_dies_without_a_byte_is_served_by_another(start):
    stack = await start("dies", "answers")
    size = BUFSIZE - 8192
    answers = [await stack.post(size) for _ in range(4)]
    assert [status for status, _ in answers] == [200] * 4
    assert stack.replicas[0].asked >= 1


@pytest.mark.parametrize(("router", "asked"), [(None, 0), ("dies", 1)])
async def test_a_router_that_does_not_answer_is_passed_by_and_left_alone_for_a_while(
    start, router, asked
):
    stack = await start("answers", "answers", router=router)
    assert [(await stack.post())[0] for _ in range(4)] == [200] * 4
    assert stack.router.asked == asked


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
