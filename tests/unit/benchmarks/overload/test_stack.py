"""What the overload bench deploys: one fleet, three ways to treat those that wait."""

import pytest

from benchmarks.live import emulated
from benchmarks.overload import shapes, stack, wait
from serve_app.config import ray_llm_config


@pytest.mark.parametrize("variant", stack.VARIANTS)
def test_only_ours_has_classes(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "make_tiny_model", lambda path: path)
    app = stack.application(variant, 2.0)
    made = ray_llm_config(app["args"]["llm_configs"][0])
    ours = made["engine_kwargs"]["additional_config"]["brimful"]
    assert (ours["classes"] is not None) == (variant == "brimful")
    limit = made["engine_kwargs"].get("max_num_queued_reqs")
    assert limit == (3 * shapes.SLOTS if variant == "vllm_limits" else None)
    if variant == "brimful":
        assert ours["classes"]["interactive"]["ttft_ms"] == 4000
        assert made["engine_kwargs"]["scheduling_policy"] == "priority"


def test_the_top_class_alone_is_within_capacity_at_ten_times() -> None:
    assert sum(shapes.SHARES.values()) == pytest.approx(1)
    assert 10 * shapes.SHARES["interactive"] < 0.9


def test_under_an_itl_alone_nothing_else_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "make_tiny_model", lambda path: path)
    made = ray_llm_config(wait.one_replica()["args"]["llm_configs"][0])
    ours = made["engine_kwargs"]["additional_config"]["brimful"]
    assert ours["batching"]["sla"]["itl_ms"] == 50
    assert ours["classes"] is None
    asks = wait.asked(wait.CARRIED_PER_S, 20.0)
    assert len(asks) == pytest.approx(200, abs=2)
    assert max(len(one.prompt) + one.max_tokens for one in asks) <= wait.MOST_TOKENS
