"""What steps are held to, by what was late where tokens leave."""

import itertools
import random
from collections.abc import Iterable
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.law.client_feedback import LEAST, STEP, ClientFeedback, Gaps
from controller.law.target import AIM

ALLOWED = AIM * 0.01


def test_what_came_since_is_a_difference_and_all_of_it_after_a_restart() -> None:
    assert Gaps(10, 3).since(Gaps(4, 1)) == Gaps(6, 2)
    assert Gaps(5, 0).since(Gaps(9, 2)) == Gaps(5, 0)
    assert Gaps(9, 1).since(Gaps(9, 2)) == Gaps(9, 1)


def clock_of(percentile: float = 99) -> ClientFeedback:
    clock = ClientFeedback(percentile)
    assert clock.learn(Gaps(), Gaps()) == 1
    return clock


def held_to(*late_fracs: Iterable[float], engine_frac: float = 0.0) -> list[float]:
    """What steps are held to after each exchange of 1,000 tokens, by the share that left late."""
    clock, left, held = clock_of(), Gaps(), []
    for late_frac in itertools.chain(*late_fracs):
        left = Gaps(left.n + 1000, left.late + round(1000 * late_frac))
        held.append(clock.learn(Gaps(left.n, round(left.n * engine_frac)), left))
    return held


def test_tokens_late_on_their_way_out_take_their_excess_off_the_share() -> None:
    *_, before, last = held_to([0.05] * 60)
    assert before - last == pytest.approx(STEP * (0.05 - ALLOWED))
    assert last < 0.945
    # None late: back at once, by what might have been.
    assert held_to([0.05] * 60, [0.0])[-1] == pytest.approx(last + STEP * ALLOWED)
    # After five minutes all is as before.
    assert held_to([0.05] * 200)[-1] == LEAST
    assert held_to([0.05] * 200, [0.0] * 600)[-1] == 1


def test_where_no_token_leaves_nothing_is_learned() -> None:
    clock = clock_of()
    lately = [clock.learn(Gaps(), left) for left in (Gaps(9, 9), Gaps(18, 18), Gaps(18, 18))]
    assert lately[0] == 1
    assert lately[1] == lately[2] < 1


def test_what_was_counted_before_it_ran_says_nothing() -> None:
    clock = ClientFeedback(99)
    assert clock.learn(Gaps(10**6, 0), Gaps(10**6, 10**5)) == 1
    assert clock.learn(Gaps(10**6, 0), Gaps(10**6, 10**5)) == 1


@pytest.mark.parametrize("late_frac", [0.05, 0.2])
def test_what_was_late_in_the_engine_already_is_for_its_own_margin(late_frac: float) -> None:
    bursts = random.Random(1)
    lately = [float(bursts.random() < late_frac) for _ in range(4000)]
    assert mean(held_to(lately)[2000:]) == pytest.approx(LEAST, abs=0.03)
    assert mean(held_to(lately, engine_frac=late_frac + 0.01)[2000:]) > 0.97


def test_one_pause_takes_nothing_off() -> None:
    assert held_to([0.0] * 9, [1.0], [0.0] * 9) == [1.0] * 19


def test_exactly_the_allowed_share_in_bursts_costs_next_to_nothing() -> None:
    assert mean(held_to([*[0.0] * 119, 1.0] * 40)) > 0.97
    random_bursts = random.Random(1)
    of_a_quarter = [0.25 * (random_bursts.random() < 4 * ALLOWED) for _ in range(10_000)]
    assert mean(held_to(of_a_quarter)) > 0.97


def test_a_lasting_excess_in_bursts_is_brought_down_within_half_a_minute() -> None:
    assert held_to([*[0.0] * 19, 1.0] * 3)[-1] < 0.96


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1), st.floats(0, 1)), max_size=200))
def test_the_share_stays_between_its_bounds(exchanges: list[tuple[int, float, float]]) -> None:
    clock, engine, left = ClientFeedback(99), Gaps(), Gaps()
    for n, in_engine, leaving in exchanges:
        engine = Gaps(engine.n + n, engine.late + int(in_engine * n))
        left = Gaps(left.n + n, left.late + int(leaving * n))
        assert LEAST <= clock.learn(engine, left) <= 1


@pytest.mark.parametrize(("jitter_ms", "frac"), [(0.0, 1.0), (4.0, 0.93), (50.0, LEAST)])
def test_it_settles_where_as_many_leave_late_as_may(jitter_ms: float, frac: float) -> None:
    """Steps of just the share of 50 ms; 5% of the tokens wait ``jitter_ms`` longer than others."""
    clock = ClientFeedback(99)
    engine = left = Gaps()
    for _ in range(400):
        step_ms = 50 * clock.itl_frac - 0.5
        late = 50 if step_ms + jitter_ms > 50 else 0
        engine = Gaps(engine.n + 1000, 0)
        left = Gaps(left.n + 1000, left.late + late)
        clock.learn(engine, left)
    assert clock.itl_frac == pytest.approx(frac, abs=0.003)
