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
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.request import Request as EngineRequest

from controller.config import BatchingConfig
from controller.records import EngineLimits, EngineState, StepLimits, StepSample
from replicas.engine.engine_options import graph_tokens
from replicas.engine.governor import Governor
from replicas.engine.scheduler import DynamicBatchScheduler
from simulator.replay.engine import uncollected
from simulator.virtual.ledger import Ledger
from simulator.virtual.trace import Trace, make_gaps
from simulator.workloads.requests import Request

OURS = "benchmarks.gpu.engine.RecordingScheduler"
TOKEN = 7  # prompts are meaningless: only lengths take time
NO_STOP = "never generated"  # a request with a stop string that is aborted counts as finished
IDLE_S = 0.01


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


class Engine:
    """An engine core with our scheduler, stepped by hand as by vLLM's ``EngineCoreProc``."""

    def __init__(self, model: Path, size: Size) -> None:
        self.size = size
        options = EngineArgs(
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
        config = options.create_engine_config(UsageContext.OPENAI_API_SERVER)
        self.core = EngineCore(config, Executor.get_class(config), log_stats=False)
        self.scheduler: Any = self.core.scheduler
        self._ours, self._added = self.scheduler, 0
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
    ) -> tuple[Trace, list[float]]:
        """Serve requests as they come, until all are served or ``limit_s`` has passed.

        Unfinished requests are aborted, and count with their tokens so far.

        Args:
            requests: in order of arrival.
            governor: None: vLLM's own scheduler.

        Returns:
            The trace without steps, and our scheduler's overhead of each step, microseconds.
        """
        self.switch(plain=governor is None)
        if governor:
            self._ours.follow(governor)
            self._ours.samples, self._ours.overhead_us = [], []
            self._ours.recording = True
        trace = self._serve_all(requests, limit_s)
        self._ours.recording = False
        self.clear()
        self.switch(plain=False)
        return trace, self._ours.overhead_us if governor else []

    def _serve_all(self, requests: Sequence[Request], limit_s: float) -> Trace:
        ledger, due, self._added = Ledger(), 0, 0
        start_s, start_wall_s = time.perf_counter(), time.time()
        with uncollected():  # collections would look at a tuple for each token
            while due < len(requests) or self.busy():
                now_s = time.perf_counter() - start_s
                if now_s > limit_s:
                    break
                while due < len(requests) and requests[due].arrival_s <= now_s:
                    one = requests[due]
                    self.add(one.input_tokens, one.max_tokens, start_wall_s + one.arrival_s)
                    ledger.come(due, one)
                    due += 1
                if not self.busy():
                    time.sleep(min(requests[due].arrival_s - now_s, IDLE_S))
                    continue
                for request_id, generated, over in self.step():
                    if not generated or request_id not in ledger:
                        continue
                    whole = generated == ledger.remaining(request_id)
                    ledger.token(request_id, generated, whole, time.perf_counter() - start_s)
                    if whole and not over:
                        self.end(request_id)
        end_s, gaps = time.perf_counter() - start_s, make_gaps(ledger.gaps)
        return Trace(tuple(ledger.close({}).values()), (), gaps, self.kv_tokens, end_s)

    def add(
        self, input_tokens: int, max_tokens: int | None, arrival_time: float | None = None
    ) -> str:
        """Add a request of up to ``max_tokens`` tokens (None: the longest); returns its id.

        No token ends it earlier, as its prompt is meaningless; ``end`` does.

        Args:
            arrival_time: by ``time.time()``; None: now.
        """
        longest = self.scheduler.max_model_len - input_tokens
        request = EngineRequest(
            str(self._added),
            [TOKEN] * input_tokens,
            SamplingParams(
                max_tokens=min(max_tokens or longest, longest),
                ignore_eos=True,
                temperature=0.0,
                stop=[NO_STOP],
            ),
            None,
            arrival_time=time.time() if arrival_time is None else arrival_time,
        )
        self._added += 1
        self.core.add_request(request, 0)
        return request.request_id

    def end(self, request_id: str) -> None:
        """End a request that has all its tokens, as vLLM does at a stop string."""
        self.core.abort_requests([request_id])

    def step(self) -> list[tuple[str, int, bool]]:
        """Run one step; returns (request id, new tokens, whether it ended) of its outputs."""
        outputs, executed = self.core.step_fn()
        self.core.post_step(executed)
        generated = outputs.get(0) if outputs else None
        return (
            [(o.request_id, len(o.new_token_ids), o.finished) for o in generated.outputs]
            if generated
            else []
        )

    def busy(self) -> bool:
        """Whether a request runs or waits, or an output is due."""
        queue = getattr(self.core, "batch_queue", None)
        return bool(self.scheduler.has_requests() or queue)

    def clear(self) -> None:
        """Abort what is left."""
        if left := list(self.scheduler.requests):
            self.core.abort_requests(left)
        while self.busy():
            self.step()
