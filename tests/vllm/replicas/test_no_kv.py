"""Models that keep no KV: encoders that embed or rank, of which vLLM has one block in no group."""

import pytest
from vllm.pooling_params import PoolingParams
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.harness import BLOCK, batching, engine_config


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("policy", ["static", "adaptive"])
def test_an_encoder_starts_and_takes_all_that_fit_into_a_step(tiny_llama, policy, async_scheduling):
    config = engine_config(
        tiny_llama,
        blocks=1,
        async_scheduling=async_scheduling,
        additional_config=batching(policy=policy, sla={"ttft_ms": 1000}),
    )
    scheduler = DynamicBatchScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=1, kv_cache_tensors=[], kv_cache_groups=[]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
    )
    assert scheduler.governor.engine.kv_tokens == 0
    for k in range(30):
        scheduler.add_request(
            Request(f"r{k}", [1] * 40, None, PoolingParams(task="embed"), arrival_time=float(k))
        )
    assert len(scheduler.schedule().scheduled_new_reqs) == 13  # 512 tokens are full
    assert len(scheduler.running) == 13
