"""What steps are held to, by what was late where tokens leave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.law.client_feedback import (
    LEAST,
    MOST_EXCESS,
    NEW,
    STEP,
    ClientFeedback,
    Gaps,
)
from controller.law.target import AIM


def test_what_came_since_is_a_difference_and_all_of_it_after_a_restart() -> None:
    assert Gaps(10, 3).since(Gaps(4, 1)) == Gaps(6, 2)
    assert Gaps(5, 0).since(Gaps(9, 2)) == Gaps(5, 0)
    assert Gaps(9, 1).since(Gaps(9, 2)) == Gaps(9, 1)


def clock_of(percentile: float = 99) -> ClientFeedback:
    clock = ClientFeedback(percentile)
    assert clock.learn(Gaps(), Gaps()) == 1
    return clock


def test_tokens_late_on_their_way_out_take_their_excess_off_the_share() -> None:
    clock = clock_of()
    # 50 of 1,000 left late where 8.5 may: 4.15% too many.
    assert clock.learn(Gaps(1000, 0), Gaps(1000, 50)) == pytest.approx(1 - STEP * 0.0415)
    # No more came: nothing is learned.
    assert clock.learn(Gaps(1000, 0), Gaps(1000, 50)) == pytest.approx(1 - STEP * 0.0415)
    # 100 more, none of them late: back by what might have been.
    back = clock.learn(Gaps(1100, 0), Gaps(1100, 50))
    assert back == pytest.approx(1 - STEP * 0.0415 + STEP * AIM * 0.01)


def test_what_was_counted_before_it_ran_says_nothing() -> None:
    clock = ClientFeedback(99)
    assert clock.learn(Gaps(10**6, 0), Gaps(10**6, 10**5)) == 1
    assert clock.learn(Gaps(10**6, 0), Gaps(10**6, 10**5)) == 1


def test_what_was_late_in_the_engine_already_is_for_its_own_margin() -> None:
    clock = clock_of()
    # A sixtieth of its 90% is believed of one exchange.
    assert clock.learn(Gaps(1000, 900), Gaps(1000, 15)) == 1
    assert clock.learn(Gaps(2000, 900), Gaps(2000, 115)) == pytest.approx(
        1 - STEP * (0.1 - 0.9 * NEW * (1 - NEW))
    )


def test_nothing_late_where_the_engine_is_takes_it_back_no_faster() -> None:
    clock, engine, left = clock_of(), Gaps(), Gaps()
    for _ in range(120):
        engine, left = Gaps(engine.n + 100, engine.late + 20), Gaps(left.n + 100, left.late + 45)
        clock.learn(engine, left)
    low = clock.itl_frac
    assert low < 0.95
    left = Gaps(left.n + 100, left.late)
    assert clock.learn(engine, left) == pytest.approx(low + STEP * AIM * 0.01)


def test_one_pause_counts_as_a_quarter_late() -> None:
    assert clock_of().learn(Gaps(1000, 0), Gaps(1000, 1000)) == 1 - STEP * MOST_EXCESS


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
