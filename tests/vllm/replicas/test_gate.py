"""What the gate makes of a prompt before admission counts it."""

from dataclasses import replace

import pytest
from vllm.sampling_params import SamplingParams

from tests.vllm.replicas.stand_in import Engine, gate_of


@pytest.mark.parametrize(("frac", "tokens"), [(1.0, 101), (0.1, 11), (0.0, 0)])
async def test_a_prompt_counts_by_the_share_that_is_computed(frac: float, tokens: int) -> None:
    engine = Engine()
    gate = gate_of(engine)
    waiting = gate.admission.waiting
    waiting.engine = replace(waiting.engine, computed_frac=frac)
    assert gate.to_compute(101) == tokens
    outputs = engine.generate({"prompt_token_ids": [1] * 101}, SamplingParams(), "r")
    assert waiting.tokens == tokens
    assert [output async for output in outputs] == ["a", "b", "c"]
