"""One run of a real engine, in real time, on the core that this process is pinned to."""

import os
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.engine_lab.core_watch import CoreWatch
from benchmarks.engine_lab.figures import figures_of
from benchmarks.engine_lab.hog import hog_process
from benchmarks.engine_lab.load import requests_of, requests_to_record
from benchmarks.engine_lab.step_log import StepLog
from benchmarks.engine_lab.tasks import EngineTask, RecordTask
from benchmarks.live.engine_core import CoreEngine
from simulator.workloads.requests import Request

NICENESS = 15  # of the engine, so that a hog wins
OURS = "replicas.scheduler.DynamicBatchScheduler"  # named, and not imported: rivals run without it
ENGINE = {
    "dtype": "bfloat16",
    "max_model_len": 2048,
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 2**30,
    "skip_tokenizer_init": True,
}
WARM_UP = (Request(0.0, 300, 4, 4), Request(0.0, 64, 4, 4))
MOST_TIMES = 5  # the seconds of arrivals: an engine that is not through by then never will be
CHUNKS = (8, 16, 32, 64, 128, 2048)  # that steps are recorded with
STEPS_PER_CHUNK = 15


def run(task: EngineTask | RecordTask, model: Path) -> dict[str, Any]:
    """Figures where the task has some, and ``recording``: an entry of a profile file.

    Raises:
        RuntimeError: the engine was not through with its requests in ``MOST_TIMES`` the time.
    """
    ground = task.ground
    seed = task.seed if isinstance(task, EngineTask) else 0
    with hog_process(ground.hog, seed) as hog:
        os.nice(NICENESS)  # after the hog's process began with what this one had
        engine = CoreEngine(model=str(model), **ENGINE, **_own_options(task))
        engine.serve_all(WARM_UP)
        log = StepLog(engine.scheduler)
        if isinstance(task, RecordTask):
            requests = requests_to_record(ground.seconds)
            _move_token_budget(engine.scheduler)
        else:
            requests = requests_of(task.rate_per_s, ground.seconds, task.seed)
        (core,) = os.sched_getaffinity(0)
        watch = CoreWatch(core, os.getpid(), hog)
        served = engine.serve_all(requests, MOST_TIMES * ground.seconds)
        found: dict[str, Any] = {**watch.shares(), "steps": log.count()}
    if engine.busy():
        raise RuntimeError(f"requests of {ground.seconds:g} s took over {MOST_TIMES} times as long")
    found["recording"] = _recording(engine, log)
    engine.core.shutdown()
    if isinstance(task, EngineTask):
        figures = figures_of(
            served, ground.sla_ms / 1000, ground.percentile, ground.skip_s, ground.seconds
        )
        found["figures"] = asdict(figures)
    return found


def _own_options(task: EngineTask | RecordTask) -> dict[str, Any]:
    if isinstance(task, RecordTask):
        return {}
    limits = {
        "max_num_seqs": task.limits.cap,
        "max_num_batched_tokens": task.limits.token_budget,
    }
    if not task.adaptive:
        return limits
    batching = {"policy": "adaptive", "sla": task.ground.sla}
    return {
        **limits,
        "scheduler_cls": OURS,
        "additional_config": {"brimful": {"batching": batching}},
    }


def _move_token_budget(scheduler: Any) -> None:
    """Every ``STEPS_PER_CHUNK`` steps another chunk beside the decodes."""
    rng, schedule, steps = random.Random(0), scheduler.schedule, 0
    most, chunk = scheduler.max_num_scheduled_tokens, CHUNKS[0]

    def with_another_budget(*args: Any, **kwargs: Any) -> Any:
        nonlocal steps, chunk
        if steps % STEPS_PER_CHUNK == 0:
            chunk = rng.choice(CHUNKS)
        steps += 1
        scheduler.max_num_scheduled_tokens = min(len(scheduler.running) + chunk, most)
        return schedule(*args, **kwargs)

    scheduler.schedule = with_another_budget


def _recording(engine: CoreEngine, log: StepLog) -> dict[str, Any]:
    scheduler = engine.scheduler
    config = scheduler.vllm_config.scheduler_config
    return {
        "kv_capacity_tokens": scheduler.cache_config.num_gpu_blocks * scheduler.block_size,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "steps": log.steps(),
    }
