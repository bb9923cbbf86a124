"""A vLLM engine core in this process: real shapes of weights, real kernels, no server.

Policies, caps and chunks change between runs, so one start of the engine (weights, CUDA graphs)
serves a whole comparison.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from benchmarks.live.engine_core import CoreEngine
from benchmarks.live.served import Served
from controller.config import BatchingConfig
from controller.records import EngineLimits, EngineState, StepLimits, StepSample
from replicas.engine.engine_options import graph_tokens
from replicas.engine.governor import Governor
from replicas.engine.scheduler import DynamicBatchScheduler
from simulator.workloads.requests import Request

OURS = "benchmarks.gpu.engine.RecordingScheduler"


class RecordingScheduler(DynamicBatchScheduler):
    """Keeps every step's sample and its scheduler overhead while ``recording``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.made_of = args, kwargs
        self.recording = False
        self.samples: list[StepSample] = []
        self.overhead_us: list[float] = []
        self.token_budget: int | None = None  # for the step-time grid: of each step
        self._overhead_s = 0.0
        self._watched: list[Governor] = []
        super().__init__(*args, **kwargs)
        self.follow(self.governor)

    def follow(self, governor: Governor) -> None:
        """Use this governor from now on."""
        self.governor = governor
        if not any(governor is one for one in self._watched):
            self._watched.append(governor)
            self._watch(governor)

    def _watch(self, governor: Governor) -> None:
        """Record the samples that it gets."""
        before, after = governor.before_step, governor.after_step

        def before_step(state: EngineState, now_s: float, *reading: Any) -> StepLimits:
            limits = before(state, now_s, *reading)
            if self.token_budget is None:
                return limits
            return replace(limits, token_budget=self.token_budget)

        def after_step(sample: StepSample, *measured: Any) -> None:
            if self.recording:
                self.samples.append(sample)
            after(sample, *measured)

        governor.before_step = before_step  # type: ignore[method-assign, assignment]
        governor.after_step = after_step  # type: ignore[method-assign, assignment]

    def _set_limits(self) -> None:
        start_s = time.perf_counter()
        super()._set_limits()
        self._overhead_s = time.perf_counter() - start_s

    def _measure(self, done: Any) -> None:
        start_s = time.perf_counter()
        super()._measure(done)
        if self.recording and done.total_num_scheduled_tokens:
            self.overhead_us.append((time.perf_counter() - start_s + self._overhead_s) * 1e6)


@dataclass(frozen=True, slots=True)
class Size:
    """The options of an engine."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    gpu_memory_utilization: float = 0.9
    enforce_eager: bool = False
    block_size: int | None = None


class Engine(CoreEngine):
    """One engine core with our scheduler."""

    def __init__(self, model: Path, size: Size) -> None:
        self.size = size
        super().__init__(
            model=str(model),
            load_format="dummy",
            skip_tokenizer_init=True,
            scheduler_cls=OURS,
            enable_prefix_caching=False,
            max_num_seqs=size.max_num_seqs,
            max_num_batched_tokens=size.max_num_batched_tokens,
            max_model_len=size.max_model_len,
            gpu_memory_utilization=size.gpu_memory_utilization,
            enforce_eager=size.enforce_eager,
            **({"block_size": size.block_size} if size.block_size else {}),
        )
        self._ours = self.scheduler
        args, kwargs = self._ours.made_of
        cls = AsyncScheduler if self._ours.scheduler_config.async_scheduling else Scheduler
        self._plain = cls(*args, **kwargs)

    def switch(self, *, plain: bool) -> None:
        """Use vLLM's own scheduler from now on, or ours: same weights, same graphs."""
        assert not self.busy()
        self.scheduler = self.core.scheduler = self._plain if plain else self._ours

    @property
    def graph_tokens(self) -> int:
        """Tokens of the largest step with a CUDA graph; 0: none."""
        return graph_tokens(self._ours.vllm_config)

    @property
    def kv_tokens(self) -> int:
        """KV memory that requests may use now, tokens."""
        pool = self.scheduler.kv_cache_manager.block_pool
        return int(pool.get_num_free_blocks() * self.scheduler.block_size)

    def governor(
        self, batching: BatchingConfig, *, cap: int | None = None, chunk: int | None = None
    ) -> Governor:
        """A policy without any data yet, with vLLM's own two limits.

        Args:
            cap, chunk: ``max_num_seqs`` and ``max_num_batched_tokens``; None: the engine's.
        """
        limits = EngineLimits(
            max_num_seqs=min(cap or self.size.max_num_seqs, self.size.max_num_seqs),
            max_num_batched_tokens=min(
                chunk or self.size.max_num_batched_tokens, self.size.max_num_batched_tokens
            ),
            kv_tokens=self.kv_tokens,
            block_tokens=self._ours.block_size,
            graph_tokens=self.graph_tokens,
        )
        return Governor(batching, limits, has_controller=False, now_s=self._ours.now_s())

    def serve(
        self, requests: Sequence[Request], governor: Governor | None, limit_s: float = np.inf
    ) -> "Run":
        """Requests as they come; returns when all are served, or after ``limit_s``.

        Unfinished requests are aborted, and count with their tokens so far.

        Args:
            governor: None: vLLM's own scheduler.
        """
        self.switch(plain=governor is None)
        if governor:
            self._ours.follow(governor)
            self._ours.samples, self._ours.overhead_us = [], []
            self._ours.recording = True
        served = self.serve_all(requests, limit_s)
        self._ours.recording = False
        self.clear()
        self.switch(plain=False)
        if governor is None:
            return Run(served, (), ())
        return Run(served, tuple(self._ours.samples), tuple(self._ours.overhead_us))


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run.

    Args:
        samples: every step; empty with vLLM's own scheduler.
        overhead_us: scheduler overhead of each step, microseconds.
    """

    served: Served
    samples: tuple[StepSample, ...]
    overhead_us: tuple[float, ...]

    @property
    def tokens_per_s(self) -> float:
        """Output tokens, over the whole run."""
        return float(self.served.tokens.sum() / self.served.took_s)
