"""KV memory by hand; beside vLLM's own allocator: tests/vllm/serve_app/test_contract_plan.py."""

import pytest

from controller.errors import ConfigError
from serve_app.planning.cards import cards, load_card
from serve_app.planning.kv import kv_layout, read_bytes
from serve_app.planning.memory import budget, least_tensor_parallel, longest_sequence
from serve_app.planning.model_config import load_model
from serve_app.planning.roofline import FITTED, RooflineCost, deviations
from serve_app.planning.weights import check_tensor_parallel


@pytest.mark.parametrize(
    ("name", "token_bytes"),
    [
        ("llama-3.1-8b", 2 * 32 * 8 * 128 * 2),
        ("llama-2-7b", 2 * 32 * 32 * 128 * 2),
        ("deepseek-v3", 61 * (512 + 64) * 2),
        ("gpt-oss-20b", 2 * 12 * 8 * 64 * 2),
    ],
)
def test_bytes_of_a_token(name: str, token_bytes: int) -> None:
    assert kv_layout(load_model(name)).token_bytes == token_bytes


def test_an_8_bit_cache_is_half_and_cards_share_heads_but_no_latent_vector() -> None:
    llama, deepseek = load_model("llama-3.1-8b"), load_model("deepseek-v3")
    whole = kv_layout(llama).token_bytes
    assert kv_layout(llama, kv_dtype="fp8").token_bytes == whole // 2
    assert kv_layout(llama, tp=4).token_bytes == whole // 4
    assert kv_layout(llama, tp=16).token_bytes == whole // 8  # eight heads
    assert kv_layout(deepseek, tp=8) == kv_layout(deepseek)


def test_a_window_bounds_what_a_sequence_takes() -> None:
    layout = kv_layout(load_model("gemma-3-27b"))
    short, long, longer = (layout.blocks(n) for n in (512, 10_240, 20_480))
    assert short == 7 * 512 / 16
    assert longer - long == 10_240 / 16  # of the full layers alone
    assert read_bytes(load_model("gemma-3-27b"), 4096, 1, 2) == 2 * 4096 * (10 * 4096 + 52 * 1024)


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


def test_the_longest_sequence_leaves_a_block() -> None:
    layout = kv_layout(load_model("llama-3.1-8b"))
    assert longest_sequence(layout, 11 * layout.block_bytes, 131_072, 0) == 160
    assert longest_sequence(layout, layout.block_bytes, 131_072, 0) == 0


def test_cards_are_found_in_any_case_and_others_named() -> None:
    assert load_card("h100") == cards().gpus["H100"]
    with pytest.raises(ConfigError, match="did you mean 'H100'"):
        load_card("H10")


def test_the_roofline_is_as_near_to_what_was_measured_as_the_page_says() -> None:
    found = {one.profile: one.rms for one in deviations()}
    assert found.keys() == FITTED.keys()
    assert found.pop("h100-llama-8b-vllm") < 0.22
    assert max(found.values()) < 0.14


def test_tokens_touch_more_experts_and_never_all_at_once() -> None:
    qwen, card = load_model("qwen3-30b-a3b"), load_card("H100")
    cost = RooflineCost(qwen, card, 1, 1024, 2)
    one, many, all_of_them = (cost.read_s(n) for n in (1, 64, 10_000))
    assert one < many < all_of_them
    assert one / all_of_them == pytest.approx(qwen.active_params / qwen.params, rel=0.1)
