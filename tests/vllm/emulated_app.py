"""vLLM's own app with an emulated engine behind it, and no Ray."""

import argparse
import multiprocessing
from pathlib import Path
from typing import Any
from unittest.mock import patch

from starlette.datastructures import State
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import FrontendArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from replicas.emulator.executor import EmulatedExecutor
from tests.vllm.harness import batching

OURS = "replicas.scheduler.DynamicBatchScheduler"
# EngineCore's process is forked from one that has imported vLLM, which takes 8 s.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["vllm.v1.engine.core", "vllm.v1.worker.cpu_worker", "replicas.scheduler"]
)


async def emulated_app(
    model: Path,
    slots: int,
    time_scale: float,
    *,
    scheduler: str | None = OURS,
    frontend: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **engine: Any,
) -> tuple[AsyncLLM, Any]:
    """The engine and the app.

    Args:
        scheduler: None: vLLM's own.
        frontend: options of vLLM's server beside its defaults.
        settings: ``additional_config.brimful``; None: a static replica's.
        engine: of ``AsyncEngineArgs``.
    """
    emulate = {"profile": "paper-fig3", "time_scale": time_scale}
    block = batching()["brimful"] if settings is None else settings
    args = AsyncEngineArgs(
        model=str(model),
        served_model_name=["m"],
        max_num_seqs=slots,
        max_num_batched_tokens=512,
        max_model_len=1024,
        block_size=32,
        num_gpu_blocks_override=256,
        distributed_executor_backend=EmulatedExecutor,
        scheduler_cls=scheduler,
        scheduling_policy="priority",
        additional_config={"brimful": {**block, "emulate": emulate}},
        load_format="dummy",
        enforce_eager=True,
        **engine,
    )
    return await app_around(args, frontend)


def started(args: AsyncEngineArgs) -> AsyncLLM:
    """An engine with its worker in EngineCore's process, as replicas on a CPU have it."""
    config = args.create_engine_config(UsageContext.ENGINE_CONTEXT)
    if config.parallel_config.distributed_executor_backend == "mp":  # one process more
        config.parallel_config.distributed_executor_backend = "uni"
    with patch("vllm.v1.engine.utils.get_mp_context", lambda: FORKS):
        return AsyncLLM.from_vllm_config(config)


async def app_around(
    args: AsyncEngineArgs, frontend: dict[str, Any] | None = None
) -> tuple[AsyncLLM, Any]:
    """An engine, and vLLM's app before it."""
    llm = started(args)
    space = argparse.Namespace(**(vars(FrontendArgs()) | vars(args) | (frontend or {})))
    state = State()
    tasks = await llm.get_supported_tasks()
    await init_app_state(llm, state, space, tasks)
    app: Any = build_app(space, tasks, llm.model_config)
    app.state._state.update(state._state)
    return llm, app
