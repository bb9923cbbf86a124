"""KV memory by hand; beside vLLM's own allocator: tests/vllm/serve_app/test_contract_plan.py."""

import pytest

from controller.errors import ConfigError
from serve_app.planning.cards import load_card
from serve_app.planning.kv import kv_layout
from serve_app.planning.memory import budget, least_tensor_parallel
from serve_app.planning.model_config import load_model
from serve_app.planning.roofline import FITTED, deviations
from serve_app.planning.weights import check_tensor_parallel


def test_the_h100_recording_is_what_the_budget_says() -> None:
    """449,952 tokens of KV at 0.9, configs/profiles/h100.json."""
    llama, card = load_model("llama-3.1-8b"), load_card("H100")
    made = budget(llama, card, 1, card.engine_defaults(), 0.9)
    tokens = kv_layout(llama).capacity_tokens(made.kv, 8192, 0)
    assert tokens == pytest.approx(449_952, rel=0.01)


def test_the_least_cards_that_hold_a_model() -> None:
    card = load_card("H100")
    engine = card.engine_defaults()
    found = [
        least_tensor_parallel(load_model(name), card, engine, 0.92)
        for name in ("llama-3.1-8b", "llama-3.1-70b")
    ]
    assert found == [1, 4]
    with pytest.raises(ConfigError, match=r"on 8 x L4: its weights are 79.* GiB a card"):
        least_tensor_parallel(load_model("deepseek-v3"), load_card("L4"), engine, 0.92)


def test_heads_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(ConfigError, match="--tensor-parallel: 3 is not allowed"):
        check_tensor_parallel(load_model("llama-3.1-8b"), 3)


def test_the_roofline_is_as_near_to_what_was_measured_as_the_page_says() -> None:
    found = {one.profile: one.rms for one in deviations()}
    assert found.keys() == FITTED.keys()
    assert found.pop("h100-llama-8b-vllm") < 0.22
    assert max(found.values()) < 0.14
