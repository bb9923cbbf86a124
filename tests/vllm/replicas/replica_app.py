"""A replica's app without Ray, over HTTP: vLLM's, all that stands before it, a real small model."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from vllm.engine.arg_utils import AsyncEngineArgs
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
from tests.vllm.emulated_app import OURS, app_around
from tests.vllm.harness import batching

SLOTS = 8
TOOLS = {"enable_auto_tools": True, "tool_call_parser": "hermes"}
TOOLS |= {"enable_auto_tool_choice": True, "enable_prompt_tokens_details": True}
CLASSES = {
    "gold": {"ttft_ms": 600_000, "priority": 0},
    "silver": {"ttft_ms": 600_000, "priority": 10, "default": True},
}


@dataclass
class Replica:
    """What stands before an engine, and where it is reached.

    Attributes:
        counted: the door's counts: the name of a key, and what became of the request.
    """

    llm: AsyncLLM
    gate: Gate
    door: Door
    answers: OpenAnswers
    leaving: LeavingTokens
    url: str
    counted: list[tuple[str, str]]

    def admit(self, **config: Any) -> None:
        """Forget all that was; admit by this block from now on."""
        made = Admission(parse_classes(CLASSES), parse_admission(config), SLOTS, self.gate.clock())
        self.gate.admission = made

    def open(self, **security: Any) -> None:
        """Go by this ``security`` block from now on."""
        self.door.rules = Rules(parse_security(security))

    async def report(self) -> Any:
        """The engine's, as the control link gets it."""
        return await self.llm.engine_core.call_utility_async("brimful_exchange", None, "r", "g")


@contextlib.asynccontextmanager
async def replica(model: Path, **engine: Any) -> AsyncIterator[Replica]:
    """A server for an ``async with`` block, on a port of this machine."""
    args = AsyncEngineArgs(
        model=str(model),
        served_model_name=["m"],
        enforce_eager=True,
        max_num_seqs=SLOTS,
        block_size=32,
        scheduler_cls=OURS,
        scheduling_policy="priority",
        additional_config=batching(),
        **engine,
    )
    llm, app = await app_around(args, TOOLS)
    app.state.server = SimpleNamespace()  # as Ray Serve LLM has it, for an engine that dies
    try:
        admission = Admission(parse_classes(CLASSES), parse_admission({}), SLOTS, 0.0)
        gate = Gate(admission, named_classes=True)
        answer_for_grammars(llm)
        gate.guard(llm)
        counted: list[tuple[str, str]] = []
        door = Door(Rules(parse_security({})), lambda key, what: counted.append((key, what)))
        answers, leaving = OpenAnswers(), LeavingTokens(on=True)
        guard_app(app, llm, door, answers, leaving, gate=gate)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
            task = asyncio.create_task(server.serve(sockets=[listener]))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            yield Replica(llm, gate, door, answers, leaving, url, counted)
            server.should_exit = server.force_exit = True
            await task
    finally:
        llm.shutdown()
