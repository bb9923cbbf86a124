"""How fast waiting requests are served: measured while some wait, or by the step model."""

from dataclasses import replace

import pytest

from controller.config import Sla
from controller.models.step_time import StepModel
from replicas.admission.drain import ArrivalRate, DrainRate, EngineView, engine_view
from tests.builders import moments_of, report

# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 0.0002, 0.0, 0.0001, 0.0, 0.0)


def busy(rate: DrainRate, seconds: int, per_s: int, start_s: float = 0.0) -> None:
    for second in range(seconds):
        for one in range(per_s):
            rate.pass_time(start_s + second + (one + 1) / per_s, waiting=True)
            rate.started(100)


def test_too_few_starts_say_nothing() -> None:
    rate = DrainRate(0.0)
    busy(rate, 1, 2)
    assert rate.requests_per_s is None
    assert rate.tokens_per_s is None


def test_it_is_the_rate_of_the_last_seconds() -> None:
    rate = DrainRate(0.0)
    busy(rate, 30, 4)
    assert rate.requests_per_s == pytest.approx(4.0, rel=0.05)
    assert rate.tokens_per_s == pytest.approx(400.0, rel=0.05)
    busy(rate, 30, 20, start_s=30.0)
    assert rate.requests_per_s == pytest.approx(20.0, rel=0.05)


def test_an_idle_replicas_clock_stands_still() -> None:
    rate = DrainRate(0.0)
    busy(rate, 30, 4)
    rate.pass_time(10_000.0, waiting=False)
    assert rate.requests_per_s == pytest.approx(4.0, rel=0.05)


def test_a_stall_lowers_it() -> None:
    rate = DrainRate(0.0)
    busy(rate, 30, 4)
    rate.pass_time(35.0, waiting=True)
    assert rate.requests_per_s is not None
    assert rate.requests_per_s < 2.0
    rate.pass_time(34.0, waiting=True)  # a clock that goes back changes nothing
    assert rate.requests_per_s < 2.0


def test_arrivals_are_forgotten() -> None:
    rate = ArrivalRate(0.0)
    for i in range(300):
        rate.arrived(i / 10)
    assert rate.per_s(30.0) == pytest.approx(10.0, rel=0.05)
    assert rate.per_s(35.0) == pytest.approx(10.0 / 2.718, rel=0.05)


def test_a_report_says_what_is_free() -> None:
    idle = report(max_running=64, running=10, waiting=0, capacity_per_s=8.0)
    assert engine_view(idle, Sla()).free_slots == 54
    assert engine_view(idle, Sla()).requests_per_s == 8.0
    crowded = report(max_running=64, running=10, waiting=7)
    assert engine_view(crowded, Sla()).free_slots == -7
    off = report(max_running=4, running=10, waiting=0, enforced=False)
    assert engine_view(off, Sla()).free_slots == 246


def test_without_a_step_model_nobody_knows_how_fast_prompts_are() -> None:
    assert engine_view(report(waiting=5), Sla()) == EngineView(free_slots=-5)


def test_prompts_take_what_the_budget_and_the_sla_leave() -> None:
    known = report(model=MODEL, decoding=100, kv_used_tokens=0)  # 40 ms without a prompt
    most = known.engine.max_num_batched_tokens - 100
    free = engine_view(known, Sla())
    assert free.prompt_tokens_per_s == pytest.approx(most / (0.04 + 0.0001 * most))
    tight = engine_view(known, Sla(itl_ms=50))  # 100 tokens in 50 ms
    assert tight.prompt_tokens_per_s == pytest.approx(100 / 0.05)
    assert tight.step_s == pytest.approx(0.05)
    drafting = replace(known, drafts=300)
    most -= 300
    free = engine_view(drafting, Sla())
    assert free.prompt_tokens_per_s == pytest.approx(most / (0.04 + 0.0001 * most))
    none = engine_view(known, Sla(itl_ms=30))
    assert (none.prompt_tokens_per_s, none.step_s) == (None, pytest.approx(0.04))


def test_what_the_prefix_cache_held_is_not_waited_for() -> None:
    assert engine_view(report(), Sla()).computed_frac == 1.0
    cached = replace(moments_of([(1000, 10)] * 4), cached=3600)
    assert engine_view(report(lengths=cached), Sla()).computed_frac == pytest.approx(0.1)
