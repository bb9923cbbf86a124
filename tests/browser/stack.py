"""The console over HTTP without Ray: governors under load, a real control loop, uvicorn."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from controller.config import parse_batching
from controller.fleet.actor import BatchController
from controller.fleet.packed_snapshot import opened
from controller.records import BatchLimits, from_wire, to_wire
from replicas.profiles.profile import StepNoise
from replicas.profiles.profile_file import load_profile
from serve_app.console.view import Deployment
from tests.browser.bare_engine import BareEngine

# What a user may call a model; nothing of it may become markup.
HOSTILE = "<img src=x onerror=document.title='taken'>"
GROUPS = {"llama-3.1-8b": "llama-3.1-8b-0a1b2c3d", HOSTILE: f"{HOSTILE}-0a1b2c3d"}
PROFILE, SLA_MS = "paper-fig3", 60.0


class Fleet:
    """Two models: one of three replicas, and one on an emulated accelerator, with one."""

    def __init__(self, controller: BatchController) -> None:
        self.controller = controller
        self.config = parse_batching({"sla": {"itl_ms": SLA_MS, "ttft_ms": 2000}})
        profile = load_profile(PROFILE)
        self.engines: dict[tuple[str, str], BareEngine] = {}
        for number, (model, replica) in enumerate(
            (model, f"{place}{n}x7k2m9q")
            for place, model in enumerate(GROUPS)
            for n in range(3 - 2 * place)
        ):
            noise = StepNoise(0.05, number)
            engine = BareEngine(self.config, profile, noise, 257, 62 + 60 * number, number)
            self.engines[GROUPS[model], replica] = engine

    def exchange(self) -> None:
        """Every replica works for half a second, and reports once."""
        for (group, replica), engine in self.engines.items():
            until_s = engine.now_s + self.config.period_s
            while engine.now_s < until_s:
                engine.step()
            report = engine.report(replica, group)
            answer = self.controller.exchange(to_wire(report), self.config.model_dump())
            engine.apply(from_wire(BatchLimits, answer))

    async def read(self) -> tuple[dict[str, Any], Sequence[Deployment]]:
        """A second passes; then as the console asks it of a cluster."""
        self.exchange()
        self.exchange()
        return opened(self.controller.packed_snapshot()), self.deployments()

    def deployments(self) -> list[Deployment]:
        found = []
        for model, group in GROUPS.items():
            ids = tuple(replica for name, replica in self.engines if name == group)
            emulated = model == HOSTILE
            server = "EmulatedServer" if emulated else "BrimfulServer"
            name = f"{server}:{model}"
            found.append(
                Deployment(
                    "llm", name, model, emulated, "HEALTHY", len(ids), len(ids) + emulated, ids
                )
            )
        return found


def mounted(app: ASGIApp, route_prefix: str) -> ASGIApp:
    """The application as Ray Serve calls it: the whole path, and how much of it is its mount."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": route_prefix}, receive, send)

    return call


@contextmanager
def served(app: ASGIApp, route_prefix: str = "") -> Iterator[str]:
    """The application at a free port of this machine; its URL."""
    config = uvicorn.Config(mounted(app, route_prefix), port=0, log_level="error", lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}{route_prefix}"
    finally:
        server.should_exit = True
        thread.join()


def wait_for(done: Callable[[], bool], tries: int = 300) -> None:
    """Return once it is so."""
    for _ in range(tries):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError("it never came about")
