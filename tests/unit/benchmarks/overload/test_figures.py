"""Goodput and attainment under overload, counted at the client."""

import math

import pytest

from benchmarks.live.stock_client import Attempt
from benchmarks.overload.client import Outcome, Planned
from benchmarks.overload.figures import Promise, figures, phases_of

PROMISE = Promise({"gold": 1.0, "batch": 5.0}, itl_s=0.1)


def served(at_s: float, name: str = "gold", ttft_s: float = 0.5, tokens: int = 11) -> Outcome:
    """Sent once, at once; tokens every 50 ms."""
    ends_s = at_s + ttft_s + 0.5
    return Outcome(
        Planned(at_s, name, 10, 11),
        [Attempt(at_s, 200, at_s + ttft_s)],
        200,
        tokens=tokens,
        first_s=at_s + ttft_s,
        ended_s=ends_s,
        predicted_s=0.4,
    )


def refused(at_s: float, name: str = "batch", attempts: int = 3) -> Outcome:
    """A 429 after 10 ms, each time."""
    tries = [Attempt(at_s + k, 429, at_s + k + 0.01) for k in range(attempts)]
    return Outcome(Planned(at_s, name, 10, 11), tries, 429, ended_s=at_s + attempts)


def test_a_promise_is_kept_whole_in_time_and_at_its_pace() -> None:
    assert PROMISE.kept(served(0))
    assert not PROMISE.kept(served(0, ttft_s=1.1))
    assert PROMISE.kept(served(0, "batch", ttft_s=1.1))
    assert not PROMISE.kept(served(0, tokens=10))
    assert not PROMISE.kept(refused(0))
    slow = served(0)
    slow.ended_s += 1.0
    assert not PROMISE.kept(slow)
    broken = served(0)
    broken.broken = True
    assert not PROMISE.kept(broken)


def test_the_figures_of_a_run() -> None:
    phases = phases_of((1, 10, 1), 20.0)
    calm = [served(t) for t in range(10)]
    crowded = [served(20 + t) for t in range(9)] + [refused(21 + t) for t in range(9)]
    after = [served(40 + t) for t in range(20)]
    found = figures(calm + crowded + after, phases, PROMISE)
    assert found.goodput_per_s == pytest.approx((0.5, 0.45, 0.95))
    assert found.recovered_frac == pytest.approx(1.0 / 0.5)  # they end at 41 to 60; 50 on counts
    assert found.attainment["gold"] == (1.0, 1.0, 1.0)
    assert found.attainment["batch"][1] == 0.0
    assert math.isnan(found.attainment["batch"][0])
    assert found.refused_s == pytest.approx(0.01)
    assert found.attempts == pytest.approx((10 + 9 + 27 + 20) / 48)
    assert (found.errors, found.unavailable, found.broken) == (0, 0, 0)
    assert found.wait_error_s == pytest.approx(0.1)
    assert found.accepted_late == 0.0


def test_what_is_no_answer_and_what_timed_out_is_counted() -> None:
    lost = Outcome(Planned(0, "gold", 1, 1), [Attempt(0.0)], None)
    failed = Outcome(Planned(0, "gold", 1, 1), [Attempt(0.0, 500, 0.1)], 500)
    late = Outcome(Planned(0, "gold", 1, 1), [Attempt(0.0, 503, 0.1)], 503)
    found = figures([lost, failed, late, served(1)], phases_of((1, 1), 5.0), PROMISE)
    assert (found.errors, found.unavailable) == (2, 1)
    assert found.accepted_late == 0.5


def test_what_still_waits_past_its_deadline_when_the_run_ends_is_late_and_no_error() -> None:
    waiting = Outcome(Planned(0, "gold", 1, 1), [Attempt(0.0)], None, unfinished=True, ended_s=9.0)
    just_sent = Outcome(
        Planned(8, "batch", 1, 1), [Attempt(8.0)], None, unfinished=True, ended_s=9.0
    )
    told_to_wait = Outcome(
        Planned(0, "gold", 1, 1), [Attempt(0.0, 429, 0.1)], None, unfinished=True, ended_s=9.0
    )
    found = figures([waiting, just_sent, told_to_wait, served(1)], phases_of((1, 1), 5.0), PROMISE)
    assert (found.unfinished, found.errors) == (3, 0)
    assert found.accepted_late == 0.5
