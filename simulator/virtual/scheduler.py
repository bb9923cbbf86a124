"""vLLM's scheduler and KV manager without a model or a device, on the replay's clock."""

import json
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")  # read by the first import of vllm
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm.config import KVTransferConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request as EngineRequest
from vllm.v1.structured_output import StructuredOutputManager

from controller.classes import ServiceClasses
from replicas.engine.scheduler import DynamicBatchScheduler
from simulator.virtual.plan import Plan, Speculation
from simulator.virtual.swap import SwapConnector

TOKEN, END = 0, 1  # tokens of the absent model, and its end token
NOTHING: list[int] = []  # these three are shared by all requests: vLLM only reads them
MORE = [TOKEN]
LAST = [END]
# The scheduler asks for a model's shape, but no decision depends on it.
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "dtype": "bfloat16",
}

logging.getLogger("vllm").setLevel(logging.ERROR)  # vLLM warns of custom scheduler classes


class VirtualClock:
    """Seconds since the replay began; only the replay advances it."""

    def __init__(self) -> None:
        self.now_s = 0.0


class VirtualScheduler(DynamicBatchScheduler):
    """The production scheduler on a virtual clock; it also records events."""

    fails_open = False  # an error ends a replay

    def __init__(
        self,
        *args: Any,
        clock: VirtualClock,
        speculation: Speculation | None = None,
        profile_kv_read_frac: float = 0.0,
        **kwargs: Any,
    ) -> None:
        self._clock = clock
        self._profile_kv_read_frac = profile_kv_read_frac
        self._preempted: list[str] = []
        self._speculation = speculation
        self._random = Random(0)
        self.transferred: KVConnectorOutput | None = None  # the worker's message with a step
        super().__init__(*args, **kwargs)

    def now_s(self) -> float:
        return self._clock.now_s

    def wall_s(self) -> float:
        return self._clock.now_s

    def kv_read_frac(self) -> float:
        return self._profile_kv_read_frac

    @property
    def cap(self) -> int:
        """The present cap on running requests."""
        return int(getattr(self, self._cap_name))

    def take_preempted(self) -> list[str]:
        """Requests that lost their KV blocks since the last call."""
        taken, self._preempted = self._preempted, []
        return taken

    def computed(self) -> dict[str, int]:
        """Computed tokens of each request."""
        return {req_id: request.num_computed_tokens for req_id, request in self.requests.items()}

    def chunks(self, scheduled: SchedulerOutput) -> frozenset[str]:
        """Requests of the just scheduled step whose prompt is not complete: they get no token."""
        requests = self.requests
        return frozenset(
            one for one in scheduled.num_scheduled_tokens if requests[one].is_prefill_chunk
        )

    def drafting_s(self, scheduled: SchedulerOutput) -> float:
        """Seconds to draft the tokens that the next step verifies."""
        if self._speculation is None:
            return 0.0
        return scheduled.num_spec_tokens_to_schedule * self._speculation.draft_s

    def finish_step(
        self, scheduled: SchedulerOutput, chunks: frozenset[str], remaining: Callable[[str], int]
    ) -> list[EngineCoreOutput]:
        """End a step: a token for each request with a complete prompt, and its accepted drafts.

        Args:
            chunks: result of ``chunks`` for this step. With a step ahead, more is computed by now.
            remaining: gives the tokens that a request still has to generate.

        Returns:
            The engine's outputs to its client.
        """
        ids = list(scheduled.num_scheduled_tokens)
        requests = self.requests
        drafts = scheduled.scheduled_spec_decode_tokens
        generated = [
            NOTHING
            if one in chunks or one not in requests  # gone since: it was scheduled once too often
            else self._sampled(remaining(one), len(drafts[one]) if one in drafts else 0)
            for one in ids
        ]
        result = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={req_id: index for index, req_id in enumerate(ids)},
            sampled_token_ids=generated,
            kv_connector_output=self.transferred,
        )
        outputs = self.update_from_output(scheduled, result)
        # With a step ahead drafts stay in the worker, and the scheduler has placeholders.
        if self._speculation and not self.scheduler_config.async_scheduling:
            drafted = [[TOKEN] * scheduled.num_spec_tokens_to_schedule for _ in ids]
            self.update_draft_token_ids(DraftTokenIds(ids, drafted))
        return outputs[0].outputs if 0 in outputs else []

    def _sampled(self, remaining: int, drafts: int) -> list[int]:
        accepted = 0
        if self._speculation:
            while accepted < drafts and self._random.random() < self._speculation.acceptance:
                accepted += 1
        generated = min(1 + accepted, remaining)
        if generated == 1:
            return LAST if remaining == 1 else MORE
        return [TOKEN] * (generated - 1) + (LAST if generated == remaining else MORE)

    def _preempt_request(self, request: EngineRequest, *args: Any, **kwargs: Any) -> None:
        self._preempted.append(request.request_id)
        if isinstance(self.connector, SwapConnector):
            self.connector.cached[request.request_id] = request.num_computed_tokens
        super()._preempt_request(request, *args, **kwargs)


def make_scheduler(
    cls: Callable[..., VirtualScheduler],
    plan: Plan,
    *,
    kv_tokens: int,
    max_model_len: int,
    by_priority: bool,
    classes: ServiceClasses | None = None,
    graph_tokens: int = 0,
    connector: type[Any] | None = None,
    **own: Any,
) -> VirtualScheduler:
    """A scheduler as EngineCore makes it, with KV memory of ``kv_tokens`` in whole blocks.

    Args:
        graph_tokens: of the largest step with a CUDA graph; 0: none.
        connector: moves KV between engines; None: there is none.
        own: arguments of the class in addition to vLLM's.
    """
    config = _config(plan, max_model_len, by_priority, classes)
    if connector is not None:
        config.kv_transfer_config = KVTransferConfig(
            kv_connector=connector.__name__,
            kv_role="kv_both",
            kv_connector_module_path=connector.__module__,
        )
        config.scheduler_config.disable_hybrid_kv_cache_manager = True  # required by vLLM
    config.compilation_config.max_cudagraph_capture_size = graph_tokens
    block_size = plan.engine.block_size
    config.cache_config.num_gpu_blocks = blocks = kv_tokens // block_size + 1  # and the null block
    spec = FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=64, dtype=torch.bfloat16
    )
    return cls(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_size,
        **own,
    )


def _config(
    plan: Plan, max_model_len: int, by_priority: bool, classes: ServiceClasses | None
) -> VllmConfig:
    own: dict[str, Any] = {"batching": plan.batching.model_dump(), "leased": True}
    if classes is not None:
        own["classes"] = classes.to_wire()
    options = plan.engine.model_dump()
    ahead = options.pop("async_scheduling")
    options["scheduling_policy"] = options["scheduling_policy"] or (
        "priority" if by_priority else "fcfs"
    )
    with tempfile.TemporaryDirectory(prefix="brimful-replay-") as directory:
        model = {**MODEL, "max_position_embeddings": max_model_len}
        (Path(directory) / "config.json").write_text(json.dumps(model))
        config = EngineArgs(
            model=directory,
            skip_tokenizer_init=True,
            max_model_len=max_model_len,
            enforce_eager=True,
            async_scheduling=False,
            additional_config={"brimful": own},
            speculative_config=_speculative(plan),
            **options,
        ).create_engine_config()
    # vLLM turns the argument off for devices such as this CPU.
    config.scheduler_config.async_scheduling = ahead
    return config


def _speculative(plan: Plan) -> dict[str, Any] | None:
    if plan.speculation is None:
        return None
    made = {  # n-grams need no second model; the origin of drafts does not matter here
        "method": "ngram",
        "num_speculative_tokens": plan.speculation.tokens,
        "prompt_lookup_max": 2,
        "prompt_lookup_min": 1,
    }
    if plan.speculation.by_batch:
        made["num_speculative_tokens_per_batch_size"] = [*plan.speculation.by_batch]
    return made
