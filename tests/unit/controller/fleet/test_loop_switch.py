"""What the controller makes of switches: its own, and those that reports bring."""

from dataclasses import replace

import pytest

from controller.fleet.loop import ControlLoop
from controller.records import BatchLimits, ReplicaReport
from controller.switch import Switch
from tests.builders import batching, linear_steps, moments_of, recent, report, stats_of

STATIC = batching(policy="static")


def asked(loop: ControlLoop, said: ReplicaReport, now_s: float = 0.0) -> BatchLimits:
    return loop.exchange(said, STATIC, now_s)


def test_a_switch_goes_along_with_the_limits_and_leaves_them_as_they_are() -> None:
    loop = ControlLoop()
    before = asked(loop, report())
    made = loop.switch(enforce=False, group=None, unix_s=3.0)
    assert made == Switch(3000, False)
    after = asked(loop, report(seq=2))
    assert after == replace(before, switches=(made,))
    assert asked(loop, report(group="comes later")).switches == (made,)


def test_a_report_sent_twice_receives_a_switch_too() -> None:
    loop = ControlLoop()
    first = asked(loop, report())
    made = loop.switch(enforce=False, group="g", unix_s=3.0)
    assert asked(loop, report()) == replace(first, switches=(made,))


def test_a_controller_that_starts_anew_learns_it_from_the_first_report() -> None:
    switches = (Switch(5, False), Switch(7, True, "a"))
    loop = ControlLoop()
    assert asked(loop, report(switches=switches)).switches == switches
    assert loop.snapshot(0.0)["switches"] == switches
    # The next switch is newer than all of them, though this clock is behind.
    assert loop.switch(enforce=False, group="a", unix_s=0.0).epoch_ms == 8


def test_a_report_that_is_refused_for_its_configuration_is_listened_to() -> None:
    loop, switch = ControlLoop(), Switch(5, False)
    with pytest.raises(ValueError, match="above max_num_seqs"):
        loop.exchange(report(switches=(switch,)), batching(max_running={"max": 999}), 0.0)
    assert asked(loop, report(replica_id="other")).switches == (switch,)


def test_the_snapshot_says_for_which_groups_it_is_off() -> None:
    loop = ControlLoop()
    for group in ("a", "b"):
        asked(loop, report(group=group))
    loop.switch(enforce=False, group="a", unix_s=1.0)
    groups = loop.snapshot(0.0)["groups"]
    assert {name: known["on"] for name, known in groups.items()} == {"a": False, "b": True}


def test_while_it_is_off_the_capacity_is_not_that_of_the_decided_cap() -> None:
    known = report(lengths=moments_of([(100, 100)]), steps=stats_of(linear_steps()))
    capped = batching(paper={"memory": "exact"}, max_running={"max": 10})
    loop = ControlLoop()
    on = loop.exchange(known, capped, 0.0)
    loop.switch(enforce=False, group="g", unix_s=1.0)
    off = loop.exchange(replace(known, seq=2), capped, 0.5)
    loop.switch(enforce=True, group=None, unix_s=2.0)
    again = loop.exchange(replace(known, seq=3), capped, 1.0)
    assert [limits.max_running for limits in (on, off, again)] == [10, 10, 10]
    assert on.capacity_per_s == again.capacity_per_s == pytest.approx(1 / 0.22, rel=0.01)
    # Memory holds 133 of 150, as with `enforce: false`.
    assert off.capacity_per_s == pytest.approx(1 / (2 / 133 + 0.02), rel=0.01)


def test_a_search_starts_anew_when_its_caps_are_applied_again() -> None:
    # Algorithm 2 goes up to the 240 that decode, on caps that nobody keeps to.
    sla = batching(sla={"itl_ms": 50}, paper={"memory": "exact"})
    slow = recent(0.08, 200.0)
    answers = []
    for enforced in (False, True):
        loop = ControlLoop()
        for seq in range(1, 20):
            said = report(seq=seq, enforced=enforced, recent=recent(0.01, 240.0))
            loop.exchange(said, sla, seq / 2)
        answers.append(loop.exchange(report(seq=20, recent=slow), sla, 10.0).max_running)
    fresh = ControlLoop().exchange(report(recent=slow), sla, 0.0).max_running
    assert answers[0] == fresh == 100
    assert answers[1] == 246  # what it found while it was on is what it goes on from
