"""What the Governor lets a step do: caps that drain, budgets that starve nobody."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from controller.errors import ConfigError
from controller.models.survival import BINS
from controller.records import StepLimits
from tests.builders import batching, engine, governor, limits, report, state


def test_before_any_limits_the_engine_runs_as_it_was_started() -> None:
    assert governor().before_step(state(), 0.0) == StepLimits(256, 2048)


def test_before_any_limits_a_configured_bound_holds() -> None:
    bounded = governor(batching(max_running={"max": 48}))
    assert bounded.before_step(state(), 0.0) == StepLimits(48, 2048)


def test_a_bound_above_the_engines_size_is_refused_at_the_start() -> None:
    with pytest.raises(
        ConfigError, match=r"batching\.max_running\.max: 512 is above max_num_seqs=256"
    ):
        governor(batching(max_running={"max": 512}))


def test_the_controllers_limits_hold_from_the_next_step() -> None:
    g = governor()
    g.apply(limits(max_running=30, token_budget=600), 1.0)
    assert g.before_step(state(running=10), 1.0) == StepLimits(30, 600)


def test_a_cap_below_what_runs_drains_and_is_counted_as_overruled() -> None:
    g = governor()
    g.apply(limits(max_running=1), 0.0)
    drained = [g.before_step(state(running=n), 0.1).max_running for n in (64, 40, 2, 1, 0)]
    assert drained == [64, 40, 2, 1, 1]
    assert g.report(state(running=0), 0.2, "r", "g").overruled == 3


def test_a_cap_never_goes_above_the_engines_size() -> None:
    g = governor()
    g.apply(limits(max_running=1000, token_budget=100_000), 0.0)
    assert g.before_step(state(), 0.1) == StepLimits(256, 2048)


def test_a_cap_of_nothing_still_runs_one() -> None:
    g = governor()
    g.apply(limits(max_running=0), 0.0)
    assert g.before_step(state(running=0), 0.1).max_running == 1


@pytest.mark.parametrize(
    ("running", "tokens_per_decode", "budget"), [(0, 1, 16), (100, 1, 116), (100, 5, 516)]
)
def test_a_budget_leaves_tokens_for_every_decode_and_a_block_of_prefill(
    running: int, tokens_per_decode: int, budget: int
) -> None:
    g = governor(limits_of_engine=engine(tokens_per_decode=tokens_per_decode))
    g.apply(limits(token_budget=1), 0.0)
    assert g.before_step(state(running=running), 0.1).token_budget == budget


def test_a_budgets_floor_never_goes_above_the_engines_own() -> None:
    g = governor(limits_of_engine=engine(max_num_batched_tokens=260))
    g.apply(limits(token_budget=1), 0.0)
    assert g.before_step(state(running=256), 0.1).token_budget == 260


def test_enforce_false_touches_nothing_and_says_what_it_would_do() -> None:
    g = governor(batching(enforce=False))
    g.apply(limits(max_running=5, token_budget=100, enforce=False), 0.0)
    assert g.before_step(state(running=200), 0.1) == StepLimits(256, 2048)
    said = g.report(state(running=200), 0.1, "r", "g")
    assert (said.max_running, said.reason, said.overruled) == (5, "sla", 0)


def test_enforce_false_leaves_nobody_out_and_the_order_as_it_is() -> None:
    g = governor(batching(enforce=False))
    asked = StepLimits(5, 100, reason="sla", decodes_first=True, left_out=(1,))
    g.step_half = SimpleNamespace(limits=lambda *_: asked)  # type: ignore[assignment]
    assert g.before_step(state(running=200), 0.0) == StepLimits(256, 2048)


def test_enforce_false_touches_nothing_before_the_first_limits_either() -> None:
    bounded = governor(batching(enforce=False, max_running={"max": 48}))
    assert bounded.before_step(state(), 0.0) == StepLimits(256, 2048)


def test_the_report_shows_the_budget_that_held_not_the_one_asked_for() -> None:
    g = governor()
    g.apply(limits(token_budget=1), 0.0)
    g.before_step(state(running=100), 0.1)
    assert g.report(state(running=100), 0.1, "r", "g").token_budget == 116


def test_a_report_before_the_first_step_has_the_start_values() -> None:
    said = governor().report(state(running=0), 0.0, "r", "g")
    assert (said.max_running, said.token_budget, said.reason) == (256, 2048, "start")
    assert said == report(
        replica_id="r",
        running=0,
        waiting=0,
        decoding=0,
        prefilling=0,
        kv_used_tokens=0,
        arrivals=0,
        finished=0,
        arrival_rate_per_s=0.0,
        outputs=(0,) * BINS,
    )


def test_who_is_left_out_of_a_step_needs_no_token_in_it() -> None:
    asked = StepLimits(10, 4, may_pause_prefill=True, left_out=(0, 1, 2, 3, 4, 5))
    assert governor()._kept_safe(asked, 10) == asked
    assert governor()._kept_safe(replace(asked, left_out=()), 10).token_budget == 10


@pytest.mark.parametrize("policy", ["adaptive", "static", "paper"])
def test_and_while_it_runs_with_nothing_changed(policy: str) -> None:
    before = batching(policy=policy)
    g = governor(before)
    with pytest.raises(ConfigError, match=r"batching\.max_running\.max: 512 is above"):
        g.configure(batching(policy=policy, max_running={"max": 512}))
    assert g.config is before
