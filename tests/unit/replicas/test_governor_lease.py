"""Who decides: the controller while its lease holds, then the replica alone."""

import pytest

from controller.config import LEAST_LEASE_PERIODS
from controller.models.step_time import fit
from controller.records import StepLimits
from replicas.governor import Governor
from tests.builders import batching, governor, limits, linear_steps, sample, state, stats_of

EXACT = batching(paper={"memory": "exact"})
SLA = batching(paper={"memory": "exact"}, sla={"itl_ms": 50})


def work(g: Governor, decodes: int, duration_s: float, steps: int = 10) -> None:
    for _ in range(steps):
        g.after_step(sample(decodes=decodes, duration_s=duration_s), prefills=1)


def learned(g: Governor) -> Governor:
    """One that finished fixed lengths of 100 + 100: 100 of them fill the engine's memory."""
    for _ in range(5):
        g.finished(100, 100)
    work(g, 10, 0.02)
    return g


def test_a_lease_holds_until_its_last_moment() -> None:
    g = learned(governor(EXACT))
    g.apply(limits(max_running=30, lease_s=5.0), 10.0)
    assert g.before_step(state(waiting=5), 14.999).max_running == 30
    assert g.mode(14.999) == "leased"
    assert g.mode(15.0) == "fallback"


def test_past_its_lease_a_replica_decides_by_what_it_learned_itself() -> None:
    g = learned(governor(EXACT))
    g.apply(limits(max_running=30, lease_s=5.0), 10.0)
    assert g.before_step(state(waiting=5), 15.0).max_running == 100
    said = g.report(state(waiting=5), 15.0, "r", "g")
    assert (said.mode, said.max_running, said.reason) == ("fallback", 100, "memory")


def test_a_replica_that_never_reached_its_controller_waits_one_lease_for_it() -> None:
    g = learned(governor(EXACT))
    assert g.before_step(state(waiting=5), 4.9).max_running == 256
    assert g.mode(4.9) == "leased"
    assert g.before_step(state(waiting=5), 5.0).max_running == 100
    assert g.mode(5.0) == "fallback"


def test_the_controllers_next_limits_end_the_fallback() -> None:
    g = learned(governor(EXACT))
    g.before_step(state(waiting=5), 5.0)
    g.apply(limits(max_running=33), 6.0)
    assert g.before_step(state(waiting=5), 6.0).max_running == 33
    said = g.report(state(), 6.0, "r", "g")
    assert (said.mode, said.reason) == ("leased", "sla")


def test_limits_that_come_renew_the_lease() -> None:
    g = learned(governor(EXACT))
    for now_s in range(0, 100, 4):
        g.apply(limits(max_running=30, lease_s=5.0), float(now_s))
        assert g.before_step(state(waiting=5), now_s + 3.9).max_running == 30


def test_the_lease_is_the_one_that_came_with_the_limits() -> None:
    g = governor(EXACT)
    g.apply(limits(lease_s=60.0), 0.0)
    assert g.mode(59.9) == "leased"


def modes(lease_s: float, period_s: float, lost: int | None) -> list[str]:
    """By exchange: who decides when it begins, of 20 of which one answer is lost.

    As ``replicas.control_link`` does it: an answer is applied with the next exchange; one that does
    not come is given up after half a lease.
    """
    g, now_s, answered, seen = governor(EXACT), 0.0, True, []
    for exchange in range(20):
        seen.append(g.mode(now_s))
        if answered:
            g.apply(limits(lease_s=lease_s), now_s)
        answered = exchange != lost
        now_s += period_s if answered else max(period_s, lease_s / 2)
    return seen


@pytest.mark.parametrize("period_s", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("lost", [None, 0, 7])
def test_the_shortest_lease_allowed_outlasts_one_lost_answer(
    period_s: float, lost: int | None
) -> None:
    assert set(modes(LEAST_LEASE_PERIODS * period_s, period_s, lost)) == {"leased"}


def test_a_lease_of_one_exchange_period_ends_at_every_exchange() -> None:
    assert modes(1.0, 1.0, None)[1:] == ["fallback"] * 19


def test_without_a_controller_a_replica_decides_alone_from_the_first_step() -> None:
    g = learned(governor(EXACT, leased=False))
    assert g.before_step(state(waiting=5), 0.0).max_running == 100
    assert g.mode(0.0) == "local"


def test_a_replica_without_a_controller_follows_one_that_appears() -> None:
    g = governor(EXACT, leased=False)
    g.apply(limits(max_running=12), 1.0)
    assert g.before_step(state(running=5), 1.0).max_running == 12
    assert g.mode(1.0) == "leased"
    assert g.mode(100.0) == "fallback"


def test_alone_it_decides_once_a_period_not_once_a_step() -> None:
    g = governor(SLA, leased=False)
    caps = []
    for now_s, batch in ((0.0, 100), (0.1, 80), (0.49, 40), (0.5, 30), (0.6, 30)):
        work(g, batch, 0.06)
        caps.append(g.before_step(state(running=0), now_s).max_running)
    # Too slow twice: (1 + 100) / 2, then (1 + mean of 80, 40 and 30) / 2.
    assert caps == [50, 50, 50, 25, 25]


def test_the_first_fallback_window_begins_with_the_last_limits() -> None:
    g = governor(SLA)
    work(g, 200, 0.2, steps=1000)  # long ago, under a controller
    g.apply(limits(max_running=64), 100.0)
    work(g, 100, 0.06)
    assert g.before_step(state(running=0), 105.0).max_running == 50


def test_alone_its_step_half_goes_by_what_its_own_loop_decided() -> None:
    g = governor(batching(policy="adaptive", sla={"itl_ms": 50}), leased=False)
    g.before_step(state(running=10), 0.0)
    for step in linear_steps(100):
        g.after_step(step, prefills=0)
    before, after = g.report(state(), 0.4, "r", "g").model, fit(stats_of(linear_steps(100)))
    g.before_step(state(running=10), 0.5)
    g.before_step(state(running=10), 0.9)
    received = g.report(state(), 1.0, "r", "g").model
    assert before is not None
    assert received is not None
    assert after is not None
    # No prompt was computed yet: a guess from the SLA before, then what the fit of all steps has.
    assert before.c3 == pytest.approx(0.05 / 1024)
    assert received.c3 == pytest.approx(after.c3, abs=1e-9)


def test_alone_static_stays_static() -> None:
    g = governor(batching(policy="static", max_running={"max": 48}), leased=False)
    work(g, 48, 9.0)
    assert g.before_step(state(running=48), 0.0) == StepLimits(48, 2048)


def test_alone_a_lower_cap_drains_too() -> None:
    g = learned(governor(EXACT, leased=False))
    assert g.before_step(state(running=180, waiting=5), 0.0).max_running == 180


def test_alone_enforce_false_touches_nothing() -> None:
    config = batching(paper={"memory": "exact"}, enforce=False)
    g = learned(governor(config, leased=False))
    assert g.before_step(state(waiting=5), 0.0).max_running == 256
    assert g.report(state(waiting=5), 0.0, "r", "g").max_running == 100


def test_alone_the_sla_still_binds() -> None:
    g = governor(batching(sla={"itl_ms": 20}, paper={"l0": "buffer"}), leased=False)
    for tenth in range(200):  # 20 decodes take five times the SLA
        step = g.before_step(state(running=20, waiting=50), tenth / 10)
        work(g, 20, 0.1, steps=1)
    said = g.report(state(running=20, waiting=50), 20.0, "r", "g")
    assert (said.reason, said.max_running) == ("sla", 10)  # (1 + 20) / 2
    assert step.max_running == 20  # they drain
