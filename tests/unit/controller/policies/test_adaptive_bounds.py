"""The step half of ``adaptive``: B_min, its step model, and what it learns while control is off."""

import pytest

from controller.models.step_time import StepModel
from tests.builders import limits, linear_steps, sample, state
from tests.unit.controller.policies.test_adaptive_step import (
    MODEL,
    ask,
    decoding,
    half,
    nobody_asks,
    prompts,
)


def test_b_min_is_kept_to_where_memory_holds_fewer() -> None:
    step = ask(half(b_min=32, kv_tokens=1000), decoding(8), prompts(*[100] * 40), kv=864)
    assert (step.max_running, step.reason) == (32, "bound")
    free = ask(half(kv_tokens=1000), decoding(8), prompts(*[100] * 40), kv=864)
    assert (free.max_running < 12, free.reason) == (True, "memory")


def test_b_min_is_kept_to_where_the_sla_leaves_room_for_fewer() -> None:
    step = ask(half(50, b_min=32), decoding(8), prompts(*[1000] * 40))
    assert (step.max_running, step.reason) == (32, "bound")
    assert ask(half(50), decoding(8), prompts(*[1000] * 40)).reason == "sla"


def test_below_b_min_a_prompt_gets_on_in_every_step() -> None:
    # 145 decodes leave nothing of 50 ms: without B_min a prompt is computed once in 100 steps.
    assert ask(half(50), decoding(145), prompts(100)).token_budget < 145 + 16
    for b_min, tokens in ((145, 0), (146, 16), (200, 16)):
        s = half(50, b_min=b_min)
        budgets = [ask(s, decoding(145), prompts(100)).token_budget - 145 for _ in range(9)]
        assert budgets == [tokens] * 9, b_min
    # ... one that has begun, too, while those in prefill make up the rest of B_min.
    s = half(50, b_min=150)
    step = ask(s, decoding(145) + prompts(*[100] * 5), prompts(100))
    assert (step.max_running, step.token_budget, step.longest_chunk_tokens) == (150, 161, 16)


def test_b_min_changes_nothing_where_more_run_or_all_may_start() -> None:
    step = ask(half(b_min=32), decoding(8), prompts(*[10] * 40))
    assert (step.max_running, step.reason) == (48, "load")
    step = ask(half(b_min=32), decoding(8), prompts(10, 10))
    assert (step.max_running, step.reason) == (10, "load")
    step = ask(half(b_min=4, kv_tokens=1000), decoding(8), prompts(*[100] * 40), kv=864)
    assert step.reason == "memory"


def test_where_no_request_waits_b_min_changes_nothing() -> None:
    step = half(b_min=32, b_max=200).limits(state(running=8), nobody_asks, limits())
    assert (step.max_running, step.reason) == (200, "load")


def with_price(c0: float, c3: float) -> int:
    """How many run where the group's model says so, and answers have 200 tokens."""
    s = half(kv_tokens=6000)
    s.receive(limits(model=StepModel(c0, 2e-4, 1e-7, c3, 0.0, 0.0)))
    for _ in range(500):
        s.finished(200)
    return ask(s, decoding(8), prompts(*[100] * 60), kv=864).max_running


def test_without_an_sla_the_price_follows_the_groups_model() -> None:
    # 6,000 tokens hold 20 at their end; the step has room for 20 prompts and part of one more.
    assert with_price(0.0, 1e-4) <= 20
    assert with_price(0.02, 0.0) == 8 + 21


def test_without_an_sla_the_model_is_learned_from_steps() -> None:
    s = half()
    for step in linear_steps(200):
        s.observe(step)
    assert s._time.model.c0 == pytest.approx(0.02, rel=0.02)
    assert s._time.model.c1 == pytest.approx(2e-4, rel=0.02)
    assert s.model is None  # without an SLA it is not published


def test_the_groups_model_counts_once_until_it_is_another_one() -> None:
    s, pushed = half(), limits(model=StepModel(0.03, 2e-4, 1e-7, 1e-4, 0.0, 0.0))
    s.receive(pushed)
    for step in linear_steps(200):
        s.observe(step)
    learned = s._time.model
    s.receive(pushed)
    s.receive(limits())
    assert s._time.model is learned


def test_a_gap_while_control_is_off_teaches_nothing() -> None:
    def late(*, enforce: bool) -> float:
        step = half(50)
        step.observe(sample(decodes=112, kv_tokens=0, duration_s=MODEL.predict_s(112, 0, 0, 0)))
        step.receive(limits(model=MODEL, enforce=enforce))
        step.resumed(3.0)
        return step._chunks._target.not_caused

    assert late(enforce=True) == pytest.approx(1 / 113, rel=1e-3)
    assert late(enforce=False) == 0
