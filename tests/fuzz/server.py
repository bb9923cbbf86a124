"""A replica's own HTTP side without Ray: door, admission, vLLM's app, an emulated engine.

``python -m tests.fuzz.server PORT KEYS_FILE``
"""

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

import uvicorn
from ray.llm._internal.serve.core.server.llm_server import _add_middleware_to_built_app
from starlette.datastructures import State
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import FrontendArgs
from vllm.v1.engine.async_llm import AsyncLLM

from controller.classes import parse_admission, parse_classes
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate
from replicas.admission.http import AdmissionMiddleware
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security
from replicas.emulator.executor import EmulatedExecutor
from replicas.workarounds.grammar_answers import answer_for_grammars
from replicas.workarounds.stream_ends import StreamEndMiddleware
from serve_app.demo.tiny_model import make_tiny_model
from tests.fuzz.processes import ended_by_sigterm
from tests.vllm.harness import batching

MODEL, SLOTS = "m", 8
CLASSES = {"gold": {"priority": 0}, "silver": {"priority": 10, "sheddable": True, "default": True}}


async def serve(port: int, keys: Path) -> None:
    """Serve until SIGTERM or SIGINT; the engine's process ends with this one."""
    settings = batching()
    settings["brimful"]["emulate"] = {"profile": "paper-fig3", "time_scale": 0.02}
    args = AsyncEngineArgs(
        model=str(make_tiny_model(Path(".cache") / "tiny-llama")),
        served_model_name=[MODEL],
        max_num_seqs=SLOTS,
        max_num_batched_tokens=512,
        max_model_len=1024,
        block_size=32,
        num_gpu_blocks_override=256,
        distributed_executor_backend=EmulatedExecutor,
        scheduler_cls="replicas.scheduler.DynamicBatchScheduler",
        scheduling_policy="priority",
        additional_config=settings,
        load_format="dummy",
        enforce_eager=True,
    )
    llm = AsyncLLM.from_engine_args(args)
    try:
        await _answer(llm, args, port, keys)
    finally:  # uvicorn raises the signal anew that ended it
        llm.shutdown()


async def _answer(llm: AsyncLLM, args: AsyncEngineArgs, port: int, keys: Path) -> None:
    space = argparse.Namespace(**(vars(FrontendArgs()) | vars(args)))
    state = State()
    tasks = await llm.get_supported_tasks()
    await init_app_state(llm, state, space, tasks)
    app: Any = build_app(space, tasks, llm.model_config)
    app.state._state.update(state._state)
    answer_for_grammars(llm)
    gate = Gate(
        Admission(parse_classes(CLASSES), parse_admission({}), SLOTS, 0.0), named_classes=True
    )
    gate.guard(llm)
    _add_middleware_to_built_app(app, StreamEndMiddleware)
    _add_middleware_to_built_app(app, AdmissionMiddleware, gate=gate)
    block = {"keys": {"file": str(keys)}, "limits": {"max_tokens": 16, "max_n": 4}}
    _add_middleware_to_built_app(app, DoorMiddleware, door=Door(Rules(parse_security(block))))
    config = uvicorn.Config(app, port=port, log_level="error", lifespan="off")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    with ended_by_sigterm(), contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
