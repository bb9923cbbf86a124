"""How far steps go beyond their prediction at a percentile."""

import pytest

from controller.models.tail import KNOWN, WINDOW_STEPS, WINDOWS, Tail


def learn(tail: Tail, largest: float, times: int = 1, steps: int = WINDOW_STEPS) -> None:
    """Full windows whose errors rise from 0 to ``largest``."""
    for _ in range(times):
        for number in range(steps):
            tail.add(largest * (number + 1) / steps)


def test_it_is_known_after_three_windows_and_the_bound_after_one() -> None:
    tail = Tail(99)
    for number in range(KNOWN * WINDOW_STEPS - 1):
        assert tail.frac is None
        assert (tail.most is None) == (number < WINDOW_STEPS)
        tail.add(0.1)
    tail.add(0.1)
    assert tail.frac == tail.most == 0.1


@pytest.mark.parametrize(("percentile", "beyond"), [(99, 2), (90, 25), (50, 128)])
def test_the_share_beyond_it_is_what_the_percentile_leaves(percentile: float, beyond: int) -> None:
    tail = Tail(percentile)
    learn(tail, 1.0, KNOWN)
    assert tail.frac == pytest.approx(1 - beyond / WINDOW_STEPS)
    assert tail.most == 1.0


def test_a_higher_percentile_takes_a_longer_window() -> None:
    tail = Tail(99.9)
    learn(tail, 1.0, KNOWN, steps=2560)
    assert tail.frac == pytest.approx(1 - 2 / 2560)


def test_one_window_that_a_change_spoiled_does_not_count() -> None:
    tail = Tail(99)
    learn(tail, 0.1, 4)
    before = tail.frac
    learn(tail, 0.9)
    assert tail.frac == before
    assert tail.most == 0.9
    learn(tail, 0.1, WINDOWS)
    assert tail.frac == before
    assert tail.most == 0.1


def test_noise_that_stays_counts_after_three_windows() -> None:
    tail = Tail(99)
    learn(tail, 0.1, 5)
    learn(tail, 0.9, 2)
    assert tail.frac is not None
    assert tail.frac < 0.1
    learn(tail, 0.9)
    assert tail.frac == pytest.approx(0.9 * (1 - 2 / WINDOW_STEPS))


def test_steps_that_take_less_than_predicted_leave_nothing_to_hold_back() -> None:
    tail = Tail(99)
    for _ in range(KNOWN * WINDOW_STEPS):
        tail.add(-0.2)
    assert tail.frac == tail.most == 0.0


def test_of_256_errors_the_third_largest_is_the_99th_percentile_and_five_windows_count() -> None:
    tail = Tail(99)
    for window in range(6):
        assert (tail.most is None, tail.frac is None) == (window < 1, window < 3)
        for number in range(256):
            tail.add((10 - window) * (number + 1))
    # Windows 1 to 5 are left: 9 x 254, 8 x 254, ...
    assert tail.frac == 7 * 254
    assert tail.most == 9 * 256
