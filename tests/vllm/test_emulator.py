"""The emulated accelerator's own clock: asleep for what the profile says, and no longer."""

import pytest

from replicas.emulator import Pace


class Clock:
    """Time that only sleeping, and the host's work, moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(clock, clock.work)


def test_the_first_step_takes_its_time(clock: Clock, pace: Pace) -> None:
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.05)


def test_the_hosts_work_between_steps_hides_in_them(clock: Clock, pace: Pace) -> None:
    for _ in range(10):
        pace.step(0.05)
        clock.work(0.04)
    assert clock.now_s == pytest.approx(100 + 10 * 0.05 + 0.04)


def test_what_the_host_takes_beyond_a_step_is_lost_and_no_more(clock: Clock, pace: Pace) -> None:
    pace.step(0.05)
    clock.work(0.07)
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.12)  # it is over by now
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.17)


def test_a_short_pause_without_requests_shortens_nothing(clock: Clock, pace: Pace) -> None:
    pace.step(0.05)
    pace.idle()
    clock.work(0.03)
    pace.step(0.05)
    assert clock.now_s == pytest.approx(100.13)
