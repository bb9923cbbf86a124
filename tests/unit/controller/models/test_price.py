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
    exact, most = math.erfc(x / math.sqrt(2)) / 2, {0.0: 1 + 1e-6}.get(x, 1.02 if x >= 5 else 1.06)
    above, below = upper_tail(np.array([x, -x]))
    assert exact * (1 - 1e-12) <= above <= exact * most
    assert below == pytest.approx(1 - above)


def test_far_out_nothing_overflows_the_numbers() -> None:
    assert upper_tail(np.array([200.0, -200.0])).tolist() == [0.0, 1.0]
    with np.errstate(all="raise", under="ignore"):
        assert passage(1e9, 1e12, 1.0) == 1.0
        assert passage(1e9, -1e12, 1.0) == 0.0


@pytest.mark.parametrize(
    ("room", "growth", "deviation"),
    [
        *((room, 0, 100) for room in (10, 50, 100, 200)),  # twice the chance to be beyond
        *((100, 50, 100), (100, 150, 100), (30, -50, 100), (30, 60, 100)),
        *((100, -50, 100), (10, 200, 100), (20, -500, 100)),  # it crosses on the way
    ],
)
def test_a_first_passage_is_by_levys_law(room: float, growth: float, deviation: float) -> None:
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


@pytest.mark.parametrize(
    ("room", "growth", "variance", "chance"),
    [
        *((100, 90, 0, 0), (100, 99, 0, 0), (100, 101, 0, 1)),  # of what is certain a step
        *((0, -1e6, 1, 1), (-1, -1e6, 1, 1), (-1e6, -1e6, 1, 1)),  # without room it has overflowed
        *((1, -100, 1, 0), (0, -100, 1, 1)),  # a single token of room is room
    ],
)
def test_where_it_is_certain(room: float, growth: float, variance: float, chance: float) -> None:
    assert passage(room, growth, variance) == pytest.approx(chance, abs=1e-6)


QUADRATIC = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0)


@pytest.mark.parametrize(
    ("model", "batch", "held", "price"),
    [
        (MODEL, [0, 1, 10, 200], [100.0] * 4, [0.005, 0.005, 0.05, 1.0]),  # c3 B / c0
        (QUADRATIC, [10, 10], [0.0, 20_000.0], [0.05, 0.1]),  # each attends to those before
        # Without a fixed part of the step it is the highest.
        (StepModel(0.0, 2e-4, 1e-7, 1e-4, 0.0, 0.0), [0, 5], [0, 0], [HIGHEST, HIGHEST]),
        (MODEL, [10**9], [0], [HIGHEST]),
        (StepModel(0.0, 2e-4, 1e-7, 0.0, 0.0, 0.0), [5], [0], [1000.0]),
    ],
)
def test_recomputing_a_token_costs_steps_of_a_slot(model, batch, held, price):
    found = recompute_price(model, np.array(batch), np.array(held, dtype=float))
    assert found == pytest.approx(price)


AHEAD = np.array([1, 10])


def pay(
    overflow: list[float],
    price: float,
    runs: tuple[float, ...] = (1.0, 0.5),
    held: float = 90.0,
    *,
    ahead: np.ndarray = AHEAD,
    fits: bool = False,
    weight: float = IN_WAVES,
) -> bool:
    of_one = np.array([overflow]), np.array([runs]), np.array([held])
    return bool(pays(np.array([fits]), *of_one, ahead, np.array([price]), weight)[0])


THREE = {"runs": (1.0, 0.5, 0.2), "ahead": np.array([1, 10, 30])}


@pytest.mark.parametrize(
    ("overflow", "even", "how"),
    [
        # Gain 1 x 1 + 9 x 0.5 x (1 - 0.4) = 3.7; loss 0.5 x 0.4 x (90 + 10) = 20 slot steps by r,
        # of which so much counts.
        ([0.0, 0.4], 3.7 / (0.8 * 20), {}),
        ([0.0, 0.4], 3.7 / (2 * 20), {"weight": 2.0}),
        # At the first horizon already: gain 0.8 + 4.5 x 0.6; loss 0.2 x 91 + 0.5 x 0.2 x 100.
        ([0.2, 0.4], 3.5 / (0.8 * 28.2), {}),
        # A chance never falls, 0.3 stays 0.3: gain 0.7 + 9 x 0.5 x 0.7 + 20 x 0.2 x 0.5;
        # loss 0.3 x 91 + 0.2 x 0.2 x 120.
        ([0.3, 0.1, 0.5], 5.85 / (0.8 * 32.1), THREE),
        ([0.3, 0.3, 0.5], 5.85 / (0.8 * 32.1), THREE),
    ],
)
def test_a_start_pays_up_to_the_price_at_which_gain_and_loss_are_even(overflow, even, how):
    assert pay(overflow, even * 0.999, **how)
    assert not pay(overflow, even * 1.001, **how)


@pytest.mark.parametrize(
    ("one_in", "weight"), [(1, 0.8), (25, 0.8), (30, 1.44), (37.5, 2.4), (50, 4.0), (1000, 4.0)]
)
def test_a_loss_weighs_more_where_few_end_at_one_length(one_in: float, weight: float) -> None:
    assert weight_of(1 / one_in) == pytest.approx(weight)


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
def test_f_falls_with_room_and_rises_with_growth(room, more, growth, variance):
    # The tail is up to 6% too high, so its terms need not move against each other exactly.
    here = passage(room, growth, variance)
    assert passage(room + more, growth, variance) <= here + 0.02
    assert passage(room, growth + more, variance) >= here - 0.02


@given(
    overflow=chances, runs=chances, held=tokens, price=st.floats(0, HIGHEST), less=st.floats(0, 1)
)
def test_what_pays_pays_at_a_lower_price(overflow, runs, held, price, less):
    q = (max(runs), min(runs))
    if pay(overflow, price, q, held):
        assert pay(overflow, price * less, q, held)


def test_the_token_that_comes_with_the_prompt_is_worth_a_step() -> None:
    # The only one it may still generate: no horizon sees it run.
    assert pay([0.0, 0.0], 1.0, runs=(0.0, 0.0), fits=True)
    assert not pay([1.0, 1.0], 1.0, runs=(0.0, 0.0), fits=False)
