"""A replica's own HTTP side without Ray: door, admission, vLLM's app, an emulated engine.

``python -m tests.fuzz.server PORT KEYS_FILE``
"""

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import uvicorn
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
from serve_app.demo.tiny_model import make_tiny_model
from tests.fuzz.processes import ended_by_sigterm
from tests.vllm.emulated_app import emulated_app

SLOTS = 8
CLASSES = {"gold": {"priority": 0}, "silver": {"priority": 10, "sheddable": True, "default": True}}


async def serve(port: int, keys: Path) -> None:
    """Serve until SIGTERM or SIGINT; the engine's process ends with this one."""
    llm, app = await emulated_app(make_tiny_model(Path(".cache") / "tiny-llama"), SLOTS, 0.02)
    try:
        await _answer(llm, app, port, keys)
    finally:  # uvicorn raises the signal anew that ended it
        llm.shutdown()


async def _answer(llm: AsyncLLM, app: Any, port: int, keys: Path) -> None:
    answer_for_grammars(llm)
    gate = Gate(
        Admission(parse_classes(CLASSES), parse_admission({}), SLOTS, 0.0), named_classes=True
    )
    gate.guard(llm)
    block = {"keys": {"file": str(keys)}, "limits": {"max_tokens": 16, "max_sequences": 4}}
    door = Door(Rules(parse_security(block)))
    guard_app(app, llm, door, OpenAnswers(), LeavingTokens(), gate=gate)
    config = uvicorn.Config(app, port=port, log_level="error", lifespan="off")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    with ended_by_sigterm(), contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
