"""The size of KV memory, and what a step reads from it. Read off vLLM, never changed."""

import logging
from typing import Any

from vllm.v1.metrics.perf import ExecutionContext, ModelMetrics

logger = logging.getLogger(__name__)


def kv_tokens(scheduler: Any) -> int:
    """Tokens that KV memory holds."""
    # Groups of layers (sliding windows, state spaces) share one pool, and a token takes a block
    # of each, as in vLLM's count. That count has the null block; for one group take the product.
    counted: int | None = scheduler.cache_config.kv_cache_size_tokens
    if len(scheduler.kv_cache_config.kv_cache_groups) > 1 and counted is not None:
        return counted
    blocks: int = scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1  # without the null block
    return blocks * int(scheduler.block_size)


def kv_token_bytes(scheduler: Any) -> float:
    """Bytes of a token in KV memory, over all workers of the engine; 0: there is no such memory."""
    tensors = sum(tensor.size for tensor in scheduler.kv_cache_config.kv_cache_tensors)
    tokens = kv_tokens(scheduler)
    workers = scheduler.vllm_config.parallel_config.tensor_parallel_size
    return workers * tensors / tokens if tokens > 0 else 0.0


def kv_read_frac(vllm_config: Any, kv_bytes_per_token: float) -> float:
    """What a decode reads for one token of context over what it reads without context.

    Bytes are those of vLLM's count; 0 if it cannot count for this model.

    Args:
        kv_bytes_per_token: over all workers of the engine; vLLM counts for one.
    """
    try:
        metrics = ModelMetrics(vllm_config)
        if "ffn" not in {one.component_type() for one in metrics.metrics}:
            return 0.0
        weights = metrics.get_read_bytes(ExecutionContext.from_single_request(1, 0, False))
    except Exception:  # an unusual model is no reason to refuse the engine
        logger.warning("vLLM cannot count what a step of this model reads", exc_info=True)
        return 0.0
    workers = vllm_config.parallel_config.tensor_parallel_size
    return kv_bytes_per_token / workers / weights if weights else 0.0
