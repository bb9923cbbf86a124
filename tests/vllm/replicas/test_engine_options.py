"""Options of a real engine configuration that the control cannot serve stop it at its start."""

import pytest

from controller.errors import ConfigError
from tests.vllm.harness import Rig, engine_config


def test_an_engine_that_the_control_cannot_serve_does_not_start(tiny_llama):
    sla = {"brimful": {"batching": {"sla": {"itl_ms": 50}}}}
    config = engine_config(
        tiny_llama,
        additional_config=sla,
        enable_chunked_prefill=False,
        max_num_batched_tokens=1024,
        pipeline_parallel_size=2,
        distributed_executor_backend="mp",
    )

    with pytest.raises(ConfigError) as error:
        Rig(config)

    assert [line.split(":")[0] for line in error.value.problems] == [
        "engine.enable_chunked_prefill",
        "engine.pipeline_parallel_size",
    ]
