"""KV memory by hand; beside vLLM's own allocator: tests/vllm/serve_app/test_contract_plan.py."""

import numpy as np
import pytest

from controller.errors import ConfigError
from replicas.profiles.profile import TableCost
from replicas.profiles.profile_file import named_profiles
from serve_app.planning.cards import load_card
from serve_app.planning.kv import kv_layout
from serve_app.planning.memory import budget, check_tensor_parallel, least_tensor_parallel
from serve_app.planning.model_config import load_model
from serve_app.planning.roofline import DEVIATIONS, RooflineCost


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


FITTED = {  # profile: the model and the card it was measured with
    "h100-llama-8b-vllm": ("llama-3.1-8b", "H100"),
    "h100-Llama-2-7b-hf-tp1": ("llama-2-7b", "H100"),
    "h100-Llama-2-70b-hf-tp4": ("llama-2-70b", "H100"),
    "a100-Llama-2-7b-hf-tp1": ("llama-2-7b", "A100-80G"),
    "a100-Meta-Llama-3-8B-tp1": ("llama-3.1-8b", "A100-80G"),
}


def test_the_roofline_is_as_near_to_what_was_measured_as_the_page_says() -> None:
    assert FITTED.keys() == DEVIATIONS.keys()
    for name, (model, card) in FITTED.items():
        table, shape = named_profiles()[name].profile(name).cost, load_model(model)
        assert isinstance(table, TableCost)
        tp = int(name.rpartition("-tp")[2]) if "-tp" in name else 1
        cost = RooflineCost(shape, load_card(card), tp, 1024, shape.dtype_bytes)
        logs = np.log([cost.dense_s(n) for n in table.tokens]) - np.log(table.dense_s)
        found = np.sqrt((logs**2).mean()), np.exp(logs.mean()) - 1
        assert found == pytest.approx(DEVIATIONS[name], abs=6e-4)
