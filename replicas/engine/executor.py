"""Where a replica's model runs: in EngineCore's own process, or in worker processes."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from controller.config import Block
from controller.errors import ConfigError
from controller.validation import parse

Executor = Literal["in_process", "mp", "ray"]
# What Ray Serve LLM starts by default, by kind of accelerator.
RAY_SERVE_LLM: dict[str, Executor] = {"cpu": "mp", "gpu": "ray", "tpu": "ray"}
# Their product is the number of worker processes; in_process has one worker.
WORLD = ("tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size")


class EngineBlock(Block):
    """The ``engine`` block of an entry of ``llm_configs``."""

    executor: Executor | None = Field(
        None,
        description="in_process: the model runs in EngineCore's process; mp (CPU), ray (GPU):"
        " in worker processes, as Ray Serve LLM starts them; none: in_process on"
        " CPU with one worker, else as Ray Serve LLM does",
    )


def executor_of(entry: Mapping[str, Any], where: str) -> Executor:
    """The executor of an entry of ``llm_configs``: the one asked for, or the default.

    Raises:
        ConfigError: the block is wrong, or the executor cannot serve the entry.
    """
    given = entry.get("engine")
    asked = parse(EngineBlock, {} if given is None else given, f"{where}.engine").executor
    kind = accelerator_kind(entry)
    engine = entry.get("engine_kwargs") or {}
    sharded = [key for key in WORLD if isinstance(engine.get(key), int) and engine[key] > 1]
    theirs = RAY_SERVE_LLM.get(kind, "ray")
    if asked is None:
        return "in_process" if kind == "cpu" and not sharded else theirs
    why = None
    if asked == "in_process" and sharded:
        keys = " and ".join(f"engine_kwargs.{key}: {engine[key]}" for key in sharded)
        why = f"{keys} needs a worker process for each part of the model; allowed: {theirs}"
    elif asked == "in_process" and kind == "tpu":
        why = "a worker on a TPU is started by Ray; allowed: ray"
    elif asked not in ("in_process", theirs):
        why = f"Ray Serve LLM starts workers on {kind} by {theirs}; allowed: in_process, {theirs}"
    if why:
        raise ConfigError([f"{where}.engine.executor: {asked!r} is not allowed: {why}"])
    return asked


def backend_problems(engine_kwargs: Mapping[str, Any], executor: Executor, where: str) -> list[str]:
    """The problem if vLLM's own option names another executor.

    Ray Serve LLM silently overwrites that option on CPU, and ours is set after that.
    """
    given = engine_kwargs.get("distributed_executor_backend")
    if given in (None, executor):
        return []
    return [
        f"{where}.engine_kwargs.distributed_executor_backend: {given!r} is not allowed:"
        f" engine.executor says where the model runs ({executor}); leave the key out"
    ]


def accelerator_kind(entry: Mapping[str, Any]) -> str:
    """``cpu``, ``gpu`` or ``tpu``, as Ray Serve LLM infers it for an entry of ``llm_configs``."""
    config = entry.get("accelerator_config")
    if isinstance(config, Mapping) and isinstance(config.get("kind"), str):
        return str(config["kind"])
    placement = entry.get("placement_group_config")
    if isinstance(placement, Mapping) and placement:
        bundles = _bundles(placement)
        for kind in ("tpu", "gpu"):
            if any(bundle.get(kind.upper()) for bundle in bundles):
                return kind
        return "cpu"
    return "tpu" if str(entry.get("accelerator_type")).startswith("TPU") else "gpu"


def _bundles(placement: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    several = placement.get("bundles")
    given = [placement.get("bundle_per_worker"), *(several if isinstance(several, list) else ())]
    return [bundle for bundle in given if isinstance(bundle, Mapping)]
