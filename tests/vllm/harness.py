"""vLLM's real scheduler and KV manager without a model, on a clock that the test moves."""

import inspect
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs, FinishReason
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from controller.records import BatchLimits, EngineReport, from_wire, to_wire
from replicas.engine.scheduler import DynamicBatchScheduler

BLOCK = 16
# Else they stay in ``waiting`` (vLLM 0.31; ``replicas.engine.vllm_queues``).
SKIPS_APART = "self.skipped_waiting = " in inspect.getsource(Scheduler.__init__)
OWN = {"step_s", "accepted", "fails_open", "window", "only_window", "states"}  # of a rig


def ngram(tokens: int) -> dict[str, Any]:
    """A speculative configuration that drafts ``tokens`` tokens from the text itself."""
    return {
        "method": "ngram",
        "num_speculative_tokens": tokens,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 2,
    }


def engine_config(
    model: Path, *, blocks: int = 4096, async_scheduling: bool = False, **args: Any
) -> VllmConfig:
    """A configuration as EngineCore has it when it makes its scheduler."""
    sizes = {"max_num_seqs": 64, "max_num_batched_tokens": 512, "max_model_len": 1024}
    args = {**sizes, "enable_prefix_caching": False, **args}
    config = EngineArgs(
        model=str(model), skip_tokenizer_init=True, block_size=BLOCK, **args
    ).create_engine_config()
    # vLLM's CPU platform switches it off; the scheduler itself knows nothing of platforms.
    config.scheduler_config.async_scheduling = async_scheduling
    config.cache_config.num_gpu_blocks = blocks
    return config


def batching(**settings: Any) -> dict[str, Any]:
    """``additional_config`` with this batching block, for a replica that a controller leads."""
    return {"brimful": {"batching": {"policy": "static", **settings}, "leased": True}}


def limits(max_running: int, token_budget: int | None = None, **fields: Any) -> BatchLimits:
    """A controller's limits that hold for the whole test."""
    fields = {"lease_s": 1e9, "reason": "static"} | fields
    return BatchLimits(max_running=max_running, token_budget=token_budget, **fields)


def token(request_id: str, index: int) -> int:
    """What the fake model says; never a stop token."""
    return 3 + (sum(request_id.encode()) + index) % 500


def block_hasher() -> Callable[[Request], list[Any]]:
    """As EngineCore gives it to requests when prefixes are cached."""
    function = get_hash_fn_by_name("sha256")
    init_none_hash(function)
    return get_request_block_hasher(BLOCK, function)


class Rig:
    """One scheduler; ``step`` is one engine step of ``step_s`` seconds.

    Args:
        in_flight: how many steps are scheduled before the first one's output is taken: 1 as in a
            synchronous engine, 2 as with async scheduling.
        accepted: how many drafts of each decode turn out right.
        fails_open: the scheduler outlives its own errors as in production; else they fail a test.
        window: a second group of layers attends to so many tokens only; None: there is none.
        only_window: all layers attend to so many tokens only.
        states: a second group of layers keeps a state for each request, cached block by block.
    """

    def __init__(
        self,
        config: VllmConfig,
        scheduler_cls: type[Scheduler] = DynamicBatchScheduler,
        *,
        in_flight: int = 1,
        step_s: float = 0.01,
        accepted: int = 0,
        fails_open: bool = False,
        window: int | None = None,
        only_window: int | None = None,
        states: bool = False,
    ) -> None:
        self.now_s = 100.0
        self.step_s = step_s
        self.accepted = accepted
        self.tokens: dict[str, list[int]] = defaultdict(list)
        self.ends: dict[str, FinishReason] = {}
        self._in_flight = in_flight
        self._queue: deque[tuple[SchedulerOutput, ModelRunnerOutput]] = deque()
        clocked = type(
            "Clocked",
            (scheduler_cls,),
            {
                "now_s": lambda _: self.now_s,
                "wall_s": lambda _: self.now_s,
                "fails_open": fails_open,
            },
        )
        shape = {"block_size": BLOCK, "num_kv_heads": 2, "head_size": 32, "dtype": torch.half}
        groups = [KVCacheGroupSpec(["full"], FullAttentionSpec(**shape))]
        if only_window is not None:
            sliding = SlidingWindowSpec(**shape, sliding_window=only_window)
            groups = [KVCacheGroupSpec(["sliding"], sliding)]
        if window is not None:
            sliding = SlidingWindowSpec(**shape, sliding_window=window)
            groups.append(KVCacheGroupSpec(["sliding"], sliding))
        if states:
            config.cache_config.mamba_cache_mode = "align"
            state = MambaSpec(
                block_size=BLOCK, shapes=((64, 64),), dtypes=(torch.half,), mamba_cache_mode="align"
            )
            groups.append(KVCacheGroupSpec(["states"], state))
        self.scheduler = clocked(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=config.cache_config.num_gpu_blocks,
                kv_cache_tensors=[],
                kv_cache_groups=groups,
            ),
            structured_output_manager=StructuredOutputManager(config),
            block_size=BLOCK,
        )
        self._hasher = block_hasher() if config.cache_config.enable_prefix_caching else None

    @classmethod
    def led(
        cls, model: Path, block: dict[str, Any] | None = None, *, in_flight: int = 1, **args: Any
    ) -> Self:
        """One that a controller leads, with this batching block; a step ahead where two are in
        flight. ``args`` are those of a rig and of ``engine_config``.
        """
        own = {name: args.pop(name) for name in OWN & args.keys()}
        config = engine_config(
            model, additional_config=batching(**block or {}), async_scheduling=in_flight > 1, **args
        )
        return cls(config, in_flight=in_flight, **own)

    def add(self, request_id: str, prompt: int | list[int], output: int, **fields: Any) -> Request:
        """A request of ``prompt`` tokens, all of them 1, or of these; it asks for ``output``."""
        request = Request(
            request_id,
            [1] * prompt if isinstance(prompt, int) else prompt,
            SamplingParams(max_tokens=output, ignore_eos=True),
            None,
            arrival_time=self.now_s,
            block_hasher=self._hasher,
            **fields,
        )
        self.scheduler.add_request(request)
        return request

    def add_all(self, count: int, prompt: int, output: int, **fields: Any) -> None:
        """So many alike: r0, r1, ..."""
        for index in range(count):
            self.add(f"r{index}", prompt, output, **fields)

    def all_whole(self, count: int, output: int) -> bool:
        """Whether each of these got every token it asked for."""
        return all(self.is_whole(f"r{index}", output) for index in range(count))

    def abort(self, request_id: str) -> None:
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def step(self) -> SchedulerOutput:
        """Schedule one step; take the output of the one that is now ``in_flight`` steps old."""
        scheduled = self.scheduler.schedule()
        self._queue.append((scheduled, self._run(scheduled)))
        self.now_s += self.step_s
        if len(self._queue) >= self._in_flight:
            self.take()
        return scheduled

    def go_on(self, count: int) -> list[SchedulerOutput]:
        """So many steps."""
        return [self.step() for _ in range(count)]

    def take(self) -> None:
        """Take the output of the oldest step in flight."""
        scheduled, result = self._queue.popleft()
        self._read(self.scheduler.update_from_output(scheduled, result))
        if self._in_flight == 1 and self.scheduler.num_spec_tokens:
            self._draft(scheduled)

    def run(self, max_steps: int = 10_000) -> None:
        """Step until every request is done."""
        for _ in range(max_steps):
            if not self.scheduler.has_unfinished_requests():
                break
            self.step()
        while self._queue:
            self.take()
        assert not self.scheduler.has_unfinished_requests(), "requests are stuck"

    def exchange(self, pushed: BatchLimits | None = None) -> EngineReport:
        """What the channel does between two steps."""
        wire = self.scheduler.exchange(pushed and to_wire(pushed), "replica", "group")
        return from_wire(EngineReport, wire)

    def is_whole(self, request_id: str, output: int) -> bool:
        """Whether the request got every token it asked for, once and in order."""
        told = [token(request_id, index) for index in range(output)]
        return self.tokens[request_id] == told and self.ends[request_id] == FinishReason.LENGTH

    def _run(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        ids = list(scheduled.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={req_id: index for index, req_id in enumerate(ids)},
            sampled_token_ids=[self._sampled(req_id, scheduled) for req_id in ids],
        )

    def _sampled(self, req_id: str, scheduled: SchedulerOutput) -> list[int]:
        request = self.scheduler.requests[req_id]
        if request.is_prefill_chunk:
            return []
        drafts = len(scheduled.scheduled_spec_decode_tokens.get(req_id, ()))
        known = request.num_output_tokens + sum(
            len(result.sampled_token_ids[result.req_id_to_index[req_id]])
            for _, result in self._queue
            if req_id in result.req_id_to_index
        )
        return [token(req_id, known + i) for i in range(1 + min(drafts, self.accepted))]

    def _draft(self, scheduled: SchedulerOutput) -> None:
        ids = list(scheduled.num_scheduled_tokens)
        drafts = [[7] * scheduled.num_spec_tokens_to_schedule for _ in ids]
        self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafts))

    def _read(self, outputs: dict[int, EngineCoreOutputs]) -> None:
        for per_client in outputs.values():
            for output in per_client.outputs:
                self.tokens[output.request_id] += output.new_token_ids
                if output.finish_reason is not None:
                    self.ends[output.request_id] = output.finish_reason


class Core:
    """As much of EngineCore as the channel sees."""

    def __init__(self, rig: Rig) -> None:
        self.scheduler = rig.scheduler
