"""The margin under the SLA, step by step, with the constants written out."""

import math

import pytest

from controller.models.margin import Margin


def margin() -> Margin:
    """Of 50 ms for 99% of the gaps: 2.5 ms of spread, three of them to begin with."""
    return Margin(0.05, 99)


def test_it_begins_with_three_spreads_of_a_twentieth_of_the_sla() -> None:
    assert margin().seconds == pytest.approx(3 * 0.0025)
    assert Margin(0.2, 99).seconds == pytest.approx(3 * 0.01)


@pytest.mark.parametrize(("percentile", "allowed"), [(99, 0.007), (95, 0.035), (50, 0.35)])
def test_a_step_inside_lowers_it_and_a_violation_raises_it(
    percentile: float, allowed: float
) -> None:
    inside, late = Margin(0.05, percentile), Margin(0.05, percentile)
    inside.observe(0.048, 0.05, 10)
    spread = math.sqrt(0.98 * 0.0025**2 + 0.02 * 0.002**2)
    assert inside.spread_s == pytest.approx(spread)
    assert inside.seconds == pytest.approx((3 - 0.2 * allowed) * spread)
    late.observe(0.051, 0.048, 10)
    spread = math.sqrt(0.98 * 0.0025**2 + 0.02 * 0.003**2)
    assert late.seconds == pytest.approx((3 + 0.2 * (1 - allowed)) * spread)


def test_a_step_as_long_as_the_sla_keeps_it() -> None:
    kept = margin()
    kept.observe(0.05, 0.05, 10)
    assert kept.seconds == pytest.approx((3 - 0.2 * 0.007) * math.sqrt(0.98) * 0.0025)


@pytest.mark.parametrize("duration_s", [3.0, 0.0])
def test_an_outlier_counts_as_five_spreads(duration_s: float) -> None:
    one = margin()
    one.observe(duration_s, 0.04, 10)
    assert one.spread_s == pytest.approx(0.0025 * math.sqrt(0.98 + 0.02 * 25))


def violated(one: Margin, decodes: int) -> float:
    """By how many spreads a violation without an error moves it."""
    before = one.seconds / one.spread_s
    one.observe(0.051, 0.051, decodes)
    return one.seconds / one.spread_s - before


def test_a_step_weighs_as_its_decodes_to_the_usual_ones_up_to_four() -> None:
    one = margin()
    assert violated(one, 10) == pytest.approx(0.2 * 0.993)
    usual = 10 + 0.01 * (5 - 10)
    assert violated(one, 5) == pytest.approx(0.2 * 0.993 * 5 / usual)
    usual += 0.01 * (30 - usual)
    assert violated(one, 30) == pytest.approx(0.2 * 0.993 * 30 / usual)
    assert violated(one, 100) == pytest.approx(0.2 * 0.993 * 4)


def test_its_level_ends_at_12_spreads_and_a_spread_at_a_thousandth_of_the_sla() -> None:
    one = margin()
    for _ in range(1000):
        one.observe(0.0501, 0.0501, 10)
    assert one.seconds == pytest.approx(12 * 0.05e-3)
    for _ in range(40):
        one.observe(0.049, 0.049, 10)
    assert one.seconds == pytest.approx((12 - 40 * 0.2 * 0.007) * 0.05e-3)


def test_its_level_ends_at_4_spreads_above_the_sla() -> None:
    one = margin()
    for _ in range(6000):
        one.observe(0.049, 0.049, 10)
    assert one.seconds == pytest.approx(-4 * 0.05e-3)


def test_it_takes_a_quarter_of_the_sla_at_most_before_its_bound_is_known() -> None:
    one = margin()
    for _ in range(100):
        one.observe(0.08, 0.05, 10)
    assert one.seconds == 0.25 * 0.05


def test_its_bound_is_what_the_largest_error_takes_of_the_sla() -> None:
    one = margin()
    one.bound(0.1)  # a step predicted to take 45.5 ms and a tenth more ends at 50
    assert one.seconds == pytest.approx(0.05 - 0.05 / 1.1)
    one.bound(0.0)
    assert one.seconds == 0
    one.bound(10.0)
    assert one.seconds == pytest.approx(0.0075)


def test_beyond_its_bound_violations_move_nothing_and_steps_inside_lead_back() -> None:
    one = margin()
    one.bound(0.1)
    one.observe(0.051, 0.051, 10)
    one.bound(10.0)
    spread = math.sqrt(0.98) * 0.0025
    assert one.seconds == pytest.approx(3 * spread)
    one.bound(0.1)
    one.observe(0.049, 0.049, 10)
    one.bound(10.0)
    spread *= math.sqrt(0.98)
    assert one.seconds == pytest.approx((3 - 0.2 * 0.007) * spread)


def test_a_late_token_of_its_own_raises_it_as_one_of_the_usual_decodes() -> None:
    one = margin()
    one.late_token()  # before any step nobody knows how many that is
    assert one.seconds == pytest.approx(3 * 0.0025)
    one.observe(0.049, 0.049, 10)
    level, spread = 3 - 0.2 * 0.007, math.sqrt(0.98) * 0.0025
    assert one.seconds == pytest.approx(level * spread)
    one.late_token()
    assert one.seconds == pytest.approx((level + 0.2 / 10) * spread)


def test_late_tokens_end_at_12_spreads_and_at_its_bound() -> None:
    one = margin()
    one.observe(0.049, 0.049, 1)
    one.bound(0.1)
    one.late_token()
    one.bound(10.0)
    spread = math.sqrt(0.98) * 0.0025
    assert one.seconds == pytest.approx((3 - 0.2 * 0.007) * spread)
    for _ in range(100):
        one.late_token()
    assert one.seconds == pytest.approx(12 * spread)
