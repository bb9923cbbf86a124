"""Whose KV blocks are whose: what is held by requests that do not run. Read, never changed."""

import logging
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.metrics.perf import ExecutionContext, ModelMetrics
from vllm.v1.request import Request

logger = logging.getLogger(__name__)


class KvHolders:
    """KV memory that no running request accounts for.

    Loads from another engine that are under way or wait for their start, sessions that wait for
    their next input, and ended requests whose blocks a connector still reads.
    """

    def __init__(self, manager: KVCacheManager) -> None:
        self._caching = manager.enable_caching
        self._managers = [
            (one.req_to_blocks, isinstance(group.kv_cache_spec, FullAttentionSpec))
            for one, group in zip(
                manager.coordinator.single_type_managers,
                manager.kv_cache_config.kv_cache_groups,
                strict=True,
            )
        ]

    def others(self, running: Sequence[Request]) -> list[str]:
        """Ids of the requests that hold blocks and do not run."""
        if not self._managers or len(self._managers[0][0]) <= len(running):
            return []  # the usual case, without a loop over requests
        run = {r.request_id for r in running}
        return [one for one in self._managers[0][0] if one not in run]

    def held_by(self, others: Iterable[str]) -> int:
        """Blocks that requests hold, by their ids, without those that anybody else uses too."""
        return sum(
            self._own(held.get(request_id, ()), whole)
            for held, whole in self._managers
            for request_id in others
        )

    def _own(self, blocks: Sequence[Any], whole: bool) -> int:
        if not whole:  # windows and states leave holes: null blocks, which no request holds
            return sum(not block.is_null and block.ref_cnt < 2 for block in blocks)
        if not self._caching:
            return len(blocks)
        # Blocks are shared from the first on.
        return len(blocks) - bisect_left(blocks, True, key=lambda block: block.ref_cnt < 2)


def kv_tokens(scheduler: Any) -> int:
    """How many tokens KV memory holds."""
    # Groups of layers (sliding windows, state spaces) share one pool, and a token takes a block
    # of each: vLLM's own count knows. It has the null block in; of one group, take the product.
    counted: int | None = scheduler.cache_config.kv_cache_size_tokens
    if len(scheduler.kv_cache_config.kv_cache_groups) > 1 and counted is not None:
        return counted
    blocks: int = scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1  # without the null block
    return blocks * int(scheduler.block_size)


def kv_token_bytes(scheduler: Any) -> float:
    """Bytes that a token takes of KV memory, over all of the engine's workers; 0: it has none."""
    tensors = sum(tensor.size for tensor in scheduler.kv_cache_config.kv_cache_tensors)
    tokens = kv_tokens(scheduler)
    workers = scheduler.vllm_config.parallel_config.tensor_parallel_size
    return workers * tensors / tokens if tokens > 0 else 0.0


def kv_read_frac(vllm_config: Any, kv_bytes_per_token: float) -> float:
    """What a decode reads for a token of its context over what it reads without any.

    By vLLM's own count of the bytes that a step reads; 0 where it knows too little of the model.

    Args:
        kv_bytes_per_token: over all of the engine's workers; vLLM counts what one of them reads.
    """
    try:
        metrics = ModelMetrics(vllm_config)
        if "ffn" not in {one.component_type() for one in metrics.metrics}:
            return 0.0
        weights = metrics.get_read_bytes(ExecutionContext.from_single_request(1, 0, False))
    except Exception:  # of an unusual model: no reason for an engine not to start
        logger.warning("vLLM cannot count what a step of this model reads", exc_info=True)
        return 0.0
    workers = vllm_config.parallel_config.tensor_parallel_size
    return kv_bytes_per_token / workers / weights if weights else 0.0
