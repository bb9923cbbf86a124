"""Theta, by the preemptions that happen."""

import pytest

from controller.models.preempted_share import COOL_STEPS, RANGE, START, STEP, Theta


def test_theta_moves_by_a_fifth_for_a_preemption_and_its_accepted_share_for_an_end() -> None:
    theta = Theta(0.02)
    assert theta.value == 1.0
    theta.preempted(5)
    assert theta.value == pytest.approx(1.2)
    theta.preempted(12)  # within 8 steps it has the same cause
    assert theta.value == pytest.approx(1.2)
    theta.preempted(13)
    assert theta.value == pytest.approx(1.4)
    theta.finished()
    assert theta.value == pytest.approx(1.4 - 0.2 * 0.02)


def test_the_first_preemption_counts_whenever_it_is() -> None:
    theta = Theta(0.02)
    theta.preempted(0)
    assert theta.value == pytest.approx(1.2)


def test_a_burst_of_preemptions_moves_theta_once() -> None:
    theta = Theta(0.02)
    for _ in range(20):
        theta.preempted(3)
    assert theta.value == pytest.approx(START + STEP)


def test_theta_rests_where_the_accepted_share_is_preempted() -> None:
    theta = Theta(0.02)
    for burst in range(50):  # one in fifty: 0.02
        for _ in range(50):
            theta.finished()
        theta.preempted(50 * burst)
    assert theta.value == pytest.approx(START, abs=STEP)


def test_theta_keeps_its_range() -> None:
    theta = Theta(0.02)
    for _ in range(2000):
        theta.finished()
    assert theta.value == RANGE[0] == 0.0
    for k in range(2000):
        theta.preempted(COOL_STEPS * k)
    assert theta.value == RANGE[1] == 3.0
