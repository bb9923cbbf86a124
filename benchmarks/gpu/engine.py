"""A vLLM engine core of this process: real weights' shapes, real kernels, no server around it.

Policies, caps and chunks are changed between runs, so that one start of the engine (weights, CUDA
graphs) serves a whole comparison.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.live.client_view import Seen
from benchmarks.live.engine_core import CoreEngine
from benchmarks.live.served import Served
from benchmarks.workloads.requests import Request
from controller.config import BatchingConfig
from controller.policies.base import ReadBatch
from controller.records import EngineLimits, EngineState, StepLimits, StepSample
from replicas.governor import Governor
from replicas.scheduler import DynamicBatchScheduler

OURS = "benchmarks.gpu.engine.RecordingScheduler"
PLAIN = "vllm.v1.core.sched.async_scheduler.AsyncScheduler"


class RecordingScheduler(DynamicBatchScheduler):
    """Keeps every step's sample, and what its own code took, while ``recording``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.recording = False
        self.samples: list[StepSample] = []
        self.own_us: list[float] = []
        self.token_budget: int | None = None  # for the step-time grid: of each step
        self._own_s = 0.0
        super().__init__(*args, **kwargs)
        self._watch()

    def _watch(self) -> None:
        """Time the governor, and what reads requests for it."""
        governor = self.governor
        before, after = governor.before_step, governor.after_step

        def before_step(state: EngineState, now_s: float, read_batch: ReadBatch) -> StepLimits:
            limits = before(state, now_s, read_batch)
            if self.token_budget is None:
                return limits
            return replace(limits, token_budget=self.token_budget)

        def after_step(sample: StepSample, prefills: int) -> None:
            if self.recording:
                self.samples.append(sample)
            after(sample, prefills)

        governor.before_step = before_step  # type: ignore[method-assign, assignment]
        governor.after_step = after_step  # type: ignore[method-assign]

    def follow(self, batching: BatchingConfig, limits: EngineLimits) -> None:
        """From now on another policy decides, which has seen nothing yet."""
        self.governor = Governor(batching, limits, leased=False, now_s=self.now_s())
        self._watch()

    def _set_limits(self) -> None:
        start_s = time.perf_counter()
        super()._set_limits()
        self._own_s = time.perf_counter() - start_s

    def _measure(self, done: Any) -> None:
        start_s = time.perf_counter()
        super()._measure(done)
        if self.recording and done.total_num_scheduled_tokens:
            self.own_us.append((time.perf_counter() - start_s + self._own_s) * 1e6)


@dataclass(frozen=True, slots=True)
class Size:
    """What an engine is started with."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    gpu_memory_utilization: float = 0.9
    enforce_eager: bool = False
    block_size: int | None = None


class Engine(CoreEngine):
    """One engine core.

    Args:
        scheduler: its class; ``OURS`` or ``PLAIN``.
    """

    def __init__(self, model: Path, size: Size, scheduler: str = OURS) -> None:
        self.size = size
        super().__init__(
            model=str(model),
            load_format="dummy",
            skip_tokenizer_init=True,
            scheduler_cls=scheduler,
            enable_prefix_caching=False,
            max_num_seqs=size.max_num_seqs,
            max_num_batched_tokens=size.max_num_batched_tokens,
            max_model_len=size.max_model_len,
            gpu_memory_utilization=size.gpu_memory_utilization,
            enforce_eager=size.enforce_eager,
            **({"block_size": size.block_size} if size.block_size else {}),
        )
        self._kept: list[Any] = []

    @property
    def kv_tokens(self) -> int:
        """KV memory that requests may use now, tokens."""
        pool = self.scheduler.kv_cache_manager.block_pool
        return int(pool.get_num_free_blocks() * self.scheduler.block_size)

    def keep_kv_free(self, tokens: int | None) -> None:
        """Take KV blocks away so that ``tokens`` are left; None: give them back."""
        pool = self.scheduler.kv_cache_manager.block_pool
        if self._kept:
            pool.free_blocks(self._kept)
            self._kept = []
        if tokens is not None:
            spare = pool.get_num_free_blocks() - tokens // self.scheduler.block_size
            self._kept = pool.get_new_blocks(max(spare, 0))

    def follow(
        self, batching: BatchingConfig, *, cap: int | None = None, chunk: int | None = None
    ) -> None:
        """The policy of the next runs, with vLLM's own two settings.

        Args:
            cap, chunk: ``max_num_seqs`` and ``max_num_batched_tokens``; None: as it was started.
        """
        assert not self.scheduler.has_requests()
        limits = EngineLimits(
            max_num_seqs=min(cap or self.size.max_num_seqs, self.size.max_num_seqs),
            max_num_batched_tokens=min(
                chunk or self.size.max_num_batched_tokens, self.size.max_num_batched_tokens
            ),
            kv_tokens=self.kv_tokens,
            block_tokens=self.scheduler.block_size,
        )
        self.scheduler.follow(batching, limits)

    def serve(self, requests: Sequence[Request], what: str, limit_s: float = np.inf) -> "Run":
        """Requests as they come; returns when all are served, or after ``limit_s``.

        Those that had not ended by then are aborted, and count as they were.
        """
        ours = isinstance(self.scheduler, RecordingScheduler)
        if ours:
            self.scheduler.samples, self.scheduler.own_us = [], []
            self.scheduler.recording = True
        with tqdm(total=len(requests), desc=what, leave=False) as bar:
            served = self.serve_all(requests, limit_s, bar.update)
        if ours:
            self.scheduler.recording = False
        self.clear()
        report = None
        if ours:
            state = EngineState(0, 0, 0)
            report = self.scheduler.governor.report(state, self.scheduler.now_s(), "card", "card")
        return Run(
            _seen(served),
            int(served.tokens.sum()) / served.took_s,
            report.preemptions if report else 0,
            tuple(self.scheduler.samples) if ours else (),
            tuple(self.scheduler.own_us) if ours else (),
        )


def _seen(served: Served) -> Seen:
    tpot_s = (served.last_s - served.first_s) / np.maximum(served.tokens - 1, 1)
    ttft_s = served.first_s - served.arrival_s
    return Seen(served.arrival_s, ttft_s, tpot_s, served.gap_s, served.gap_end_s)


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to.

    Args:
        tokens_per_s: output tokens, over the whole run.
        samples: every step; empty for a plain engine.
        own_us: own code of each step, microseconds.
    """

    seen: Seen
    tokens_per_s: float
    preemptions: int
    samples: tuple[StepSample, ...]
    own_us: tuple[float, ...]
