"""The step-time target: without noise, with some, under pauses, overload and slow phases."""

from dataclasses import replace

import numpy as np
import pytest

from controller.models.demand import Demand
from controller.models.step_target import (
    KEPT_STEPS,
    LONGER,
    REFRESH_STEPS,
    SETTLED_STEPS,
    StepTarget,
)
from controller.models.step_time import MIN_STEPS, StepModel
from tests.unit.controller.models.prompt_engine import MODEL, D, PromptEngine


def engine(per_s: float, cv: float = 0.0, **workload: float) -> PromptEngine:
    """One that has run for a minute."""
    one = PromptEngine(per_s, **workload)
    one.cv = cv
    one.run(60)
    return one


@pytest.mark.parametrize("per_s", [2, 5, 8])  # 11 prompts/s are carried inside D
def test_without_noise_steps_with_prompts_take_all_of_the_itl_target(per_s: float) -> None:
    seen = engine(per_s).run(60)
    assert seen.late == 0
    assert min(seen.full_s) > 0.98 * D  # but for what is less than one token


def test_before_any_step_ran_it_leaves_room_for_a_spread_of_a_few_percent() -> None:
    target = StepTarget(D, 99.0, demand(10_000.0))
    target.refresh(MODEL, 0.0)
    assert 0.8 * D < target.target_s < 0.95 * D


@pytest.mark.parametrize("per_s", [2, 5])
@pytest.mark.parametrize("cv", [0.05, 0.1])
def test_late_tokens_are_no_more_than_the_percentile_allows(per_s: float, cv: float) -> None:
    one = engine(per_s, cv)
    seen = one.run(300)
    assert 0.003 < seen.late_share < 0.01
    assert seen.lets_late_share == 0
    assert one.target.late_anyway < 0.001


@pytest.mark.parametrize(("per_s", "lets_late"), [(0.25, True), (0.5, False)])
def test_a_late_token_counts_by_the_root_of_how_much_longer_its_step_is(
    per_s: float, lets_late: bool
) -> None:
    # Prompts of 3 D. By s / D they would be computed in parts at 0.25/s, counted once whole at 0.5.
    known = Demand()
    known.observe(int(100 * per_s * 60), int(1500 * per_s * 60), 60.0, [1500])
    target = StepTarget(D, 99.0, known)
    for k in range(MIN_STEPS + KEPT_STEPS + SETTLED_STEPS):
        observe(target, 1, (0.9, 0.95, 1.0, 1.05, 1.1)[k % 5])
    target.refresh(MODEL, 0.0)
    assert (target.target_s > D) is lets_late


def test_a_lower_percentile_is_made_use_of() -> None:
    strict, loose = engine(5, 0.1), engine(5, 0.1, percentile=95.0)
    strict.run(200)
    seen = loose.run(200)
    assert loose.target.target_s > 1.05 * strict.target.target_s
    assert 0.02 < seen.late_share < 0.05


def test_pauses_of_the_host_do_not_shorten_steps() -> None:
    means_s = []
    for pauses in (0.0, 0.05):
        one = engine(5, 0.05)
        one.pause_s, one.pauses = 0.03, pauses
        seen = one.run(200)
        means_s.append(np.mean(seen.targets_s))
        caused = seen.late_share - pauses
        assert caused < 0.012  # ... and what they make late is not made up for
        assert one.target.late_anyway == pytest.approx(pauses, abs=0.015)
    assert means_s[1] == pytest.approx(means_s[0], rel=0.04)


def test_overload_buys_no_throughput_with_late_tokens() -> None:
    one = engine(20, 0.05)
    seen = one.run(300)
    assert one.waiting > 1000
    assert seen.late_share < 0.01
    assert seen.lets_late_share == 0


SLOW = StepModel(c0=0.046, c1=4e-4, c2=0.0, c3=2e-4, c4=0.0, sigma_s=0.0, mixed_s=0.004)
SLOWER = StepModel(c0=0.03, c1=3e-4, c2=0.0, c3=1.5e-4, c4=0.0, sigma_s=0.0, mixed_s=0.003)


def change(one: PromptEngine, model: StepModel) -> None:
    one.model = model
    one.target.regime_changed()


def test_a_slow_phase_that_makes_d_infeasible_is_served_late() -> None:
    one = engine(5, 0.05)
    change(one, SLOW)
    one.run(20)
    seen = one.run(60)
    assert seen.prompts / 60 == pytest.approx(5, rel=0.2)
    assert one.waiting < 10
    change(one, MODEL)
    one.run(200)
    assert one.run(100).late_share < 0.01


def test_what_an_engine_usually_carries_is_what_it_has_carried_for_minutes() -> None:
    # 5 prompts/s are more than it carries inside D now, and were not before.
    one = engine(5, 0.05)
    change(one, SLOWER)
    assert one.run(60).lets_late_share > 0.5
    one.run(900)
    seen = one.run(300)
    assert seen.lets_late_share == 0
    assert seen.late_share < 0.012


@pytest.mark.parametrize("cv", [0.1, 0.3])
def test_long_prompts_of_a_light_load_are_computed_in_one_late_step(cv: float) -> None:
    # 150 ms each: every 70th step is late for the one or two that decode.
    one = engine(0.08, cv, tokens=1500)
    one.run(600)
    seen = one.run(2000)
    assert seen.lets_late_share == 1.0  # and not now one, now the other
    assert one.target.target_s >= MODEL.predict_s(0, 0, 1500, 0)
    assert seen.late_share < 0.0115


def test_a_step_of_several_d_counts_for_more_than_one_late_step() -> None:
    # A whole prompt takes 3 D. Counted once, such steps would be chosen up to 0.7 prompts/s.
    seen = engine(0.6, 0.1, tokens=1500).run(600)
    assert seen.lets_late_share < 0.01


def demand(prefill: float) -> Demand:
    """So many prompt tokens/s, and a third as many decodes."""
    found = Demand()
    found.observe(int(prefill / 3), int(prefill), 1.0, [200, 300])
    return found


def clean(prefill: float, ratio: float = 1.0) -> StepTarget:
    """A target of steps that took so many times what was predicted."""
    target = StepTarget(D, 99.0, demand(prefill))
    observe(target, MIN_STEPS + KEPT_STEPS + SETTLED_STEPS, ratio)
    target.refresh(MODEL, 0.0)
    return target


def observe(target: StepTarget, steps: int, ratio: float = 1.0) -> None:
    for _ in range(steps):
        target.observe(20, 0.03, 0.024, ratio * 0.03, prompts=True)


@pytest.mark.parametrize("prefill", [3.0, 300.0, 3000.0])
def test_the_target_at_full_load_is_known_whatever_the_load(prefill: float) -> None:
    assert clean(prefill).full_load_target_s == pytest.approx(D, rel=0.01)
    assert clean(prefill, 1.1).full_load_target_s == pytest.approx(D / 1.1, rel=0.01)
    fresh = StepTarget(D, 99.0, Demand())
    assert fresh.full_load_target_s == D


def test_with_less_of_d_steps_are_as_much_shorter_at_once() -> None:
    target = clean(1000.0, 1.1)
    before = target.target_s, target.full_load_target_s
    target.set_target_frac(0.9)
    held = target.target_s, target.full_load_target_s, target.itl_s
    assert held == pytest.approx((0.9 * before[0], 0.9 * before[1], 0.9 * D))
    target.refresh(MODEL, 0.0)
    assert target.target_s == pytest.approx(held[0], rel=0.01)


def test_steps_count_once_the_model_is_known_and_no_change_of_regime_follows() -> None:
    def spread(target: StepTarget) -> float:
        target.refresh(MODEL, 0.0)
        return target.target_s

    first, plain = (StepTarget(D, 99.0, demand(1000.0)) for _ in range(2))
    observe(first, MIN_STEPS, ratio=1.5)
    assert spread(first) == spread(plain)
    target, before_s = clean(1000.0), spread(clean(1000.0))
    observe(target, 6, ratio=1.5)  # until the change is seen
    target.regime_changed()
    observe(target, SETTLED_STEPS, ratio=1.4)
    observe(target, 20)
    assert spread(target) == pytest.approx(before_s, rel=1e-6)
    observe(target, 60, ratio=1.1)  # no change: every sixth step takes so long
    observe(target, 10)
    assert spread(target) == pytest.approx(D / 1.1, rel=1e-6)


def test_it_is_found_anew_after_some_steps_with_prompts() -> None:
    target = clean(1000.0)
    target.observe(20, 0.03, 0.024, 0.03, prompts=False)
    target.observe(0, 0.03, 0.024, 0.03, prompts=True)  # nobody decodes
    observe(target, REFRESH_STEPS - 1)
    assert not target.due
    observe(target, 1)
    assert target.due


def test_a_late_token_of_another_cause_is_none_of_the_chunks() -> None:
    target = clean(1000.0)
    target.waited(2 * D)
    assert 0 < target.late_anyway < 0.01


def test_an_infeasible_d_has_longer_steps() -> None:
    target = clean(1000.0)
    for _ in range(20):
        observe(target, 40)
        target.refresh(replace(MODEL, c0=0.048), 0.0)
    assert D < target.target_s <= D * LONGER[-1]


def test_no_demand_is_too_large_or_too_small() -> None:
    for prefill, waiting in ((0.0, 0), (3.0, 10**9), (1e9, 0)):
        target = StepTarget(D, 99.0, demand(prefill))
        target._demand.see(waiting)
        target.refresh(MODEL, 0.0)
        assert 0.8 * D < target.target_s <= D
        assert 0.8 * D < target.full_load_target_s < 1.01 * D


def test_where_no_prompt_fits_d_it_is_let_go_before_any_step_with_prompts_was_seen() -> None:
    demand = Demand()
    target, model = StepTarget(D, 99.0, demand), replace(MODEL, c0=0.055)
    demand.see(waiting=5)
    for _ in range(199):
        target.observe(2, 0.055, 0.055, 0.055, prompts=False)
    target.refresh(model, 0.0)
    assert target.target_s <= D * 1.2
    target.observe(2, 0.055, 0.055, 0.055, prompts=False)
    demand.observe(2, 0, 0.055)
    target.refresh(model, 0.0)
    assert target.target_s > 0.055 + model.mixed_s


def test_steps_that_were_not_sized_here_tell_nothing_of_those_that_are() -> None:
    target = StepTarget(D, 99.0, Demand())
    for _ in range(500):
        target.observe(10, 0.4, 0.02, 0.4, prompts=True, applied=False)
    target.refresh(MODEL, 0.0)
    assert target.target_s < 0.97 * D  # still the spread that is taken at first


def test_what_made_a_step_late_is_added_to_a_shorter_one_as_well() -> None:
    target = StepTarget(0.05, 99.0, Demand())
    target._placeholders = 0
    target._predicted_s.clear()
    target._took_s.clear()
    for predicted_s, took_s in ((0.010, 0.070), (0.040, 0.048), (0.080, 0.100), (0.020, 0.020)):
        target._count(predicted_s, took_s)
    assert target._in_time_s() == pytest.approx([-0.010, 0.04, 0.05 * 40 / 48, 0.05])


@pytest.mark.parametrize(
    ("predicted_s", "decodes_s", "took_s", "by_itself"),
    [
        (0.030, 0.024, 0.060, True),  # a pause of 30 ms: 24 ms of decodes would be late with it
        (0.030, 0.024, 0.055, False),
        (0.150, 0.030, 0.200, False),  # a third longer, and so would 30 ms have been
        (0.150, 0.030, 0.300, True),
        (0.030, 0.030, 0.049, False),  # in time
    ],
)
def test_what_prompts_did_not_cause_is_told_as_lateness_is(
    predicted_s: float, decodes_s: float, took_s: float, by_itself: bool
) -> None:
    target = StepTarget(0.05, 99.0, Demand())
    target.observe(10, predicted_s, decodes_s, took_s, prompts=True)
    assert (target.late_anyway > 0) == by_itself


def test_under_overload_a_batch_that_grew_is_no_excuse() -> None:
    for prefill, excused in ((1000.0, True), (1e6, False)):
        target = clean(prefill)
        before = target.late_anyway
        target.observe(1000, 0.05, 0.048, 0.053, prompts=True)
        assert (target.late_anyway > before) == excused


def test_late_tokens_fade_with_the_time_that_steps_take() -> None:
    target = clean(1000.0)
    target.observe(1000, 0.03, 0.024, 0.3, prompts=False)
    late = target.late_anyway
    for _ in range(2000):  # a minute
        target.observe(20, 0.03, 0.024, 0.03, prompts=False)
    assert target.late_anyway < 0.2 * late


def test_late_tokens_are_expected_as_they_were_measured() -> None:
    more, none = (clean(1000.0) for _ in range(2))
    for one, late_every in ((more, 25), (none, 10_000)):
        for k in range(REFRESH_STEPS * 100):
            ratio = 1.0 + 0.05 * np.sin(k)  # what p(s) is made of
            one.observe(20, 0.04, 0.024, 0.04 * ratio, prompts=True)
            if k % late_every == late_every - 1:  # 4% of the tokens, by steps that are not in p
                one.observe(20, 0.04, 0.024, 1.01 * D, prompts=True)
        one.refresh(MODEL, 0.0)
    assert none.selection_bias == 1.0
    assert more.selection_bias > 2.0
    assert more.target_s < none.target_s


def test_steps_that_were_not_sized_here_do_not_say_what_is_expected() -> None:
    target = clean(1000.0)
    for _ in range(1000):
        target.observe(20, 0.03, 0.024, D * 1.01, prompts=True, applied=False)
    assert target.selection_bias == 1.0
