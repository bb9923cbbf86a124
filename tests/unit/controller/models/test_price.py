"""What a preemption and an empty slot cost, number by number."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.price import (
    HIGHEST,
    IN_WAVES,
    first_passage,
    pays,
    recompute_price,
    upper_tail,
    weight_of,
)
from controller.models.step_time import StepModel

# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 0.0, 0.0)


def passage(room: float, growth: float, variance: float) -> float:
    return float(first_passage(*(np.array([x], dtype=float) for x in (room, growth, variance)))[0])


def phi(x: float) -> float:
    return NormalDist().cdf(x)


@pytest.mark.parametrize("x", [0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 30.0])
def test_the_upper_tail_is_never_too_low_and_at_most_6_percent_too_high(x: float) -> None:
    exact = math.erfc(x / math.sqrt(2)) / 2
    above, below = upper_tail(np.array([x, -x]))
    assert exact * (1 - 1e-12) <= above <= exact * 1.06
    assert below == pytest.approx(1 - above)


def test_it_is_exact_at_0_and_within_2_percent_from_5_deviations_on() -> None:
    assert upper_tail(np.array([0.0]))[0] == pytest.approx(0.5)
    for x in (5.0, 10.0, 30.0):
        exact = math.erfc(x / math.sqrt(2)) / 2
        assert upper_tail(np.array([x]))[0] == pytest.approx(exact, rel=0.02)


def test_far_out_nothing_overflows_the_numbers() -> None:
    assert upper_tail(np.array([200.0, -200.0])).tolist() == [0.0, 1.0]
    with np.errstate(all="raise", under="ignore"):
        assert passage(1e9, 1e12, 1.0) == 1.0
        assert passage(1e9, -1e12, 1.0) == 0.0


@pytest.mark.parametrize("room", [10.0, 50.0, 100.0, 200.0])
def test_without_drift_it_is_twice_the_chance_to_be_beyond(room: float) -> None:
    assert passage(room, 0.0, 100.0**2) == pytest.approx(2 * phi(-room / 100), rel=0.06)


def test_with_drift_it_is_more_than_the_chance_to_be_beyond() -> None:
    # Phi(0.3) + exp(2 x 60 x 30 / 100^2) Phi(-0.9)
    exact = phi(0.3) + math.exp(0.36) * phi(-0.9)
    assert passage(30.0, 60.0, 100.0**2) == pytest.approx(exact, rel=0.03)


def test_a_single_token_of_room_is_room() -> None:
    assert passage(1.0, -100.0, 1.0) < 1e-6
    assert passage(0.0, -100.0, 1.0) == 1.0


def test_memory_that_falls_fast_crosses_on_the_way_with_exp_of_2_m_g_by_v() -> None:
    # 500 +- 100 less in the end, and 20 of room: the end says never.
    assert passage(20.0, -500.0, 100.0**2) == pytest.approx(math.exp(-2.0), rel=1e-4)
    assert phi(-520 / 100) < 1e-6


@pytest.mark.parametrize(
    ("room", "growth", "deviation"),
    [(100, 50, 100), (100, 150, 100), (30, -50, 100), (100, -50, 100), (10, 200, 100)],
)
def test_with_drift_it_is_levys_law(room: float, growth: float, deviation: float) -> None:
    exact = phi((growth - room) / deviation) + math.exp(2 * growth * room / deviation**2) * phi(
        (-growth - room) / deviation
    )
    assert passage(room, growth, deviation**2) == pytest.approx(exact, rel=0.06)


def test_it_is_what_a_random_walk_does() -> None:
    steps, walks = 400, 4000
    moves = np.random.default_rng(3).normal(-50 / steps, 100 / math.sqrt(steps), (walks, steps))
    crossed = float((moves.cumsum(axis=1).max(axis=1) > 60).mean())
    # The walk is looked at in single steps, which moves its limit by 0.58 of one's deviation.
    room = 60 + 0.5826 * 100 / math.sqrt(steps)
    assert passage(room, -50.0, 100.0**2) == pytest.approx(crossed, rel=0.08)


@pytest.mark.parametrize(("growth", "chance"), [(90.0, 0.0), (99.0, 0.0), (101.0, 1.0)])
def test_of_what_is_certain_it_is_a_step(growth: float, chance: float) -> None:
    assert passage(100.0, growth, 0.0) == chance


@pytest.mark.parametrize("room", [0.0, -1.0, -1e6])
def test_where_there_is_no_room_memory_has_overflowed(room: float) -> None:
    assert passage(room, -1e6, 1.0) == 1.0


def test_recomputing_a_token_is_worth_c3_b_by_c0_steps_of_a_slot() -> None:
    batch = np.array([0, 1, 10, 200])
    held = np.full(4, 100.0)
    assert recompute_price(MODEL, batch, held) == pytest.approx([0.005, 0.005, 0.05, 1.0])


def test_of_a_long_request_each_token_attends_to_those_before() -> None:
    quadratic = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0)
    price = recompute_price(quadratic, np.array([10, 10]), np.array([0.0, 20_000.0]))
    assert price == pytest.approx([0.05, 0.1])


def test_without_a_fixed_part_of_the_step_the_price_is_the_highest() -> None:
    free = StepModel(0.0, 2e-4, 1e-7, 1e-4, 0.0, 0.0)
    assert recompute_price(free, np.array([0, 5]), np.zeros(2)).tolist() == [HIGHEST, HIGHEST]
    assert recompute_price(MODEL, np.array([10**9]), np.zeros(1)).tolist() == [HIGHEST]
    nothing = StepModel(0.0, 2e-4, 1e-7, 0.0, 0.0, 0.0)
    assert recompute_price(nothing, np.array([5]), np.zeros(1)).tolist() == [1000.0]


AHEAD = np.array([1, 10])


def pay(
    overflow: list[float],
    price: float,
    runs: tuple[float, ...] = (1.0, 0.5),
    held: float = 90.0,
    ahead: np.ndarray = AHEAD,
    fits: bool = False,
) -> bool:
    of_one = np.array([overflow]), np.array([runs]), np.array([held])
    return bool(pays(np.array([fits]), *of_one, ahead, np.array([price]), IN_WAVES)[0])


def test_gain_and_loss_by_hand() -> None:
    # Gain 1 x 1 + 9 x 0.5 x (1 - 0.4) = 3.7; loss 0.5 x 0.4 x (90 + 10) = 20 slot steps by r,
    # of which so much counts.
    even = 3.7 / (IN_WAVES * 20)
    assert pay([0.0, 0.4], even * 0.999)
    assert not pay([0.0, 0.4], even * 1.001)


def test_an_overflow_at_the_first_horizon_counts_from_there() -> None:
    # Gain 0.8 + 4.5 x 0.6 = 3.5; loss 0.2 x 91 + 0.5 x 0.2 x 100 = 28.2.
    even = 3.5 / (0.8 * 28.2)
    assert pay([0.2, 0.4], even * 0.999)
    assert not pay([0.2, 0.4], even * 1.001)


def test_three_horizons_and_a_chance_that_never_falls() -> None:
    # 0.3 stays 0.3: gain 0.7 + 9 x 0.5 x 0.7 + 20 x 0.2 x 0.5 = 5.85;
    # loss 0.3 x 91 + 0.2 x 0.2 x 120 = 32.1.
    even = 5.85 / (0.8 * 32.1)
    three = {"runs": (1.0, 0.5, 0.2), "ahead": np.array([1, 10, 30])}
    for overflow in ([0.3, 0.1, 0.5], [0.3, 0.3, 0.5]):
        assert pay(overflow, even * 0.999, **three)
        assert not pay(overflow, even * 1.001, **three)


@pytest.mark.parametrize(
    ("one_in", "weight"),
    [(1, 0.8), (25, 0.8), (30, 1.44), (37.5, 2.4), (50, 4.0), (1000, 4.0)],
)
def test_a_loss_weighs_more_where_few_end_at_one_length(one_in: float, weight: float) -> None:
    assert weight_of(1 / one_in) == pytest.approx(weight)


def test_the_weight_is_that_of_the_loss() -> None:
    # By hand as above, at a weight of 2.
    overflow, runs, held = np.array([[0.0, 0.4]]), np.array([[1.0, 0.5]]), np.array([90.0])
    even = 3.7 / (2 * 20)
    for price, worth in ((even * 0.999, True), (even * 1.001, False)):
        found = pays(np.array([False]), overflow, runs, held, AHEAD, np.array([price]), 2.0)
        assert found.tolist() == [worth]


def test_what_never_overflows_pays_at_any_price_and_what_has_overflowed_at_none() -> None:
    assert pay([0.0, 0.0], HIGHEST)
    assert not pay([1.0, 1.0], 0.0)


chances = st.lists(st.floats(0, 1), min_size=2, max_size=2)
tokens = st.floats(1, 1e6)
growths = st.floats(-1e6, 1e6)
variances = st.floats(0, 1e10)


@given(room=st.floats(-1e6, 1e6), growth=growths, variance=variances)
def test_f_is_a_probability(room: float, growth: float, variance: float) -> None:
    assert 0 <= passage(room, growth, variance) <= 1


@given(room=tokens, more=tokens, growth=growths, variance=st.floats(1, 1e10))
def test_f_falls_with_room_and_rises_with_growth(
    room: float, more: float, growth: float, variance: float
) -> None:
    # The tail is up to 6% too high, so its terms need not move against each other exactly.
    here = passage(room, growth, variance)
    assert passage(room + more, growth, variance) <= here + 0.02
    assert passage(room, growth + more, variance) >= here - 0.02


@given(
    overflow=chances,
    runs=chances,
    held=tokens,
    price=st.floats(0, HIGHEST),
    less=st.floats(0, 1),
)
def test_what_pays_pays_at_a_lower_price(
    overflow: list[float], runs: list[float], held: float, price: float, less: float
) -> None:
    q = (max(runs), min(runs))
    if pay(overflow, price, q, held):
        assert pay(overflow, price * less, q, held)


def test_the_token_that_comes_with_the_prompt_is_worth_a_step() -> None:
    # The only one it may still generate: no horizon sees it run.
    assert pay([0.0, 0.0], 1.0, runs=(0.0, 0.0), fits=True)
    assert not pay([1.0, 1.0], 1.0, runs=(0.0, 0.0), fits=False)
