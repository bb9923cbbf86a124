"""A replica's app without Ray, over HTTP: vLLM's, what stands before it, an emulated engine."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from openai import AsyncOpenAI
from vllm.v1.engine.async_llm import AsyncLLM

from controller.classes import parse_admission, parse_classes
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate
from replicas.door.auth import Door, Rules
from replicas.door.settings import parse_security
from replicas.server.app import guard_app
from replicas.server.egress import LeavingTokens
from replicas.server.stream_ends import OpenAnswers
from replicas.workarounds.grammar_answers import answer_for_grammars
from tests.vllm.emulated_app import emulated_app

CLASSES = {
    "gold": {"ttft_ms": 600_000, "priority": 0},
    "silver": {"ttft_ms": 600_000, "priority": 10, "sheddable": True, "default": True},
}
SLOTS = 4


def cancels(app: Any) -> Any:
    """The app as Ray Serve calls it: the request's task is cancelled when the client leaves."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        messages: asyncio.Queue[Any] = asyncio.Queue()

        async def until_gone() -> None:
            message = None
            while message is None or message["type"] != "http.disconnect":
                message = await receive()
                messages.put_nowait(message)

        gone = asyncio.create_task(until_gone())
        request = asyncio.create_task(app(scope, messages.get, send))
        await asyncio.wait((gone, request), return_when=asyncio.FIRST_COMPLETED)
        for task in (gone, request):
            task.cancel()
        await asyncio.gather(gone, request, return_exceptions=True)

    return called


@dataclass
class Replica:
    """The middlewares before an engine, its address, and OpenAI's client for it."""

    llm: AsyncLLM
    gate: Gate
    door: Door
    answers: OpenAnswers
    url: str
    client: AsyncOpenAI

    def admit(self, **config: Any) -> None:
        """Forget all that was; admit by this block from now on."""
        made = Admission(parse_classes(CLASSES), parse_admission(config), SLOTS, self.gate.clock())
        self.gate.admission = made

    def open(self, **security: Any) -> None:
        """Go by this ``security`` block from now on."""
        self.door.rules = Rules(parse_security(security))

    async def complete(self, tokens: int = 1, **other: Any) -> Any:
        asked = {"model": "m", "prompt": "a river", "max_tokens": tokens, **other}
        return await self.client.completions.create(**asked)

    async def busy(self, count: int) -> list[asyncio.Task[Any]]:
        """So many requests more that take for ever; returns when they are let in."""
        inside = self.inside() + count
        asked = {"ignore_eos": True, "service_tier": "gold"}
        tasks = [asyncio.create_task(self.complete(900, extra_body=asked)) for _ in range(count)]
        running, waiting = min(inside, SLOTS), self.gate.admission.waiting
        await self.until(lambda: (waiting.running, self.inside()) == (running, inside))
        return tasks

    def inside(self) -> int:
        waiting = self.gate.admission.waiting
        return waiting.running + waiting.requests

    async def until(self, found: Any) -> None:
        """The test's own time limit ends the wait."""
        while not found():  # noqa: ASYNC110 - counts of the product, which has no event for it
            await asyncio.sleep(0.01)

    async def idle(self) -> None:
        """Nothing is left: in admission, in the frontend, in the engine's KV memory."""
        await self.until(lambda: self.inside() == 0)
        await self.until(lambda: not self.llm.output_processor.request_states)
        while True:
            report = await self.report()
            if not report["running"] + report["waiting"] + report["kv_used_tokens"]:
                return

    async def report(self) -> Any:
        """The engine's, as the control link gets it."""
        return await self.llm.engine_core.call_utility_async("brimful_exchange", None, "r", "g")


async def leave(tasks: list[asyncio.Task[Any]]) -> None:
    """These clients close their connections."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving(tiny_llama: Path) -> AsyncIterator[Replica]:
    """A server for an ``async with`` block, on a port of this machine."""
    llm, app = await emulated_app(tiny_llama, SLOTS, 1.0, enable_prefix_caching=False)
    app.state.server = SimpleNamespace()  # as Ray Serve LLM has it, for an engine that dies
    admission = Admission(parse_classes(CLASSES), parse_admission({}), SLOTS, 0.0)
    gate, answers = Gate(admission, named_classes=True), OpenAnswers()
    answer_for_grammars(llm)
    gate.guard(llm)
    door = Door(Rules(parse_security({})))
    guard_app(app, llm, door, answers, LeavingTokens(), gate=gate)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(cancels(app), log_level="error", lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0) as client:
            yield Replica(llm, gate, door, answers, url, client)
        server.should_exit = server.force_exit = True
        await task
    llm.shutdown()
