"""HAProxy as Ray 2.60 starts it, before servers that answer, die or are not there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI
from ray.serve._private import haproxy
from ray.serve.config import HTTPOptions

from serve_app.haproxy import ENVIRONMENT, write_launcher
from serve_app.haproxy_watch import PID
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
