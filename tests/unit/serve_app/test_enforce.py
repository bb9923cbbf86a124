"""``brimful enforce`` against controllers and replicas that are here, without Ray."""

from typing import Any

import pytest

from controller.errors import BrimfulError
from serve_app import enforce
from serve_app.enforce import SETTLED_S, UnansweredError
from serve_app.outcome import Outcome, lines_of
from tests.fleet import Fleet


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controllers have been there for long."""
    monkeypatch.setattr(enforce, "SETTLED_S", 0.0)


def switched(fleet: Fleet, state: str, group: str | None = None, wait_s: float = 3.0) -> Outcome:
    """The command; while it waits, replicas report."""
    return enforce.switch(
        fleet.calls(),
        enforce=state == "on",
        group=group,
        wait_s=wait_s,
        clock=lambda: fleet.now_s,
        sleep=lambda _: fleet.period(),
    )


def fleet_of(*names: str) -> Fleet:
    """Replicas named by their group and a number, each with one report."""
    fleet = Fleet()
    for name in names:
        fleet.join(name, group=name[0])
    fleet.period()
    return fleet


def test_it_returns_when_every_replica_has_confirmed() -> None:
    fleet = fleet_of("a1", "a2", "b1")
    outcome = switched(fleet, "off")
    assert outcome.confirmed
    assert {r.replica: (r.group, r.enforced) for r in outcome.replicas} == {
        "a1": ("a", False),
        "a2": ("a", False),
        "b1": ("b", False),
    }
    assert set(fleet.enforced().values()) == {False}
    fleet.join("a3", group="a")
    fleet.join("c1", group="c")
    fleet.period()
    assert fleet.enforced()["a3"] is fleet.enforced()["c1"] is False
    assert switched(fleet, "on").confirmed
    assert set(fleet.enforced().values()) == {True}


def test_of_one_group_the_others_are_left_as_they_are() -> None:
    fleet = fleet_of("a1", "b1")
    outcome = switched(fleet, "off", group="a")
    assert [r.replica for r in outcome.replicas] == ["a1"]
    assert fleet.enforced() == {"a1": False, "b1": True}
    switched(fleet, "off")
    switched(fleet, "on", group="b")
    assert fleet.enforced() == {"a1": False, "b1": True}
    switched(fleet, "on")
    assert fleet.enforced() == {"a1": True, "b1": True}


def test_a_group_that_does_not_exist_is_refused_with_those_that_do() -> None:
    fleet = fleet_of("a1", "b1")
    with pytest.raises(BrimfulError) as refused:
        switched(fleet, "off", group="c")
    assert str(refused.value) == "--group: 'c' does not exist; the groups are: a, b"
    assert fleet.enforced() == {"a1": True, "b1": True}
    with pytest.raises(BrimfulError, match="'c' does not exist; no replica is there"):
        switched(Fleet(), "off", group="c")


def test_a_group_that_was_switched_may_be_switched_back_without_a_replica() -> None:
    fleet = fleet_of("a1", "b1")
    switched(fleet, "off", group="a")
    del fleet.members["a1"]
    fleet.restart()
    fleet.period()  # b1 knows of it, too
    outcome = switched(fleet, "on", group="a")
    assert (outcome.confirmed, outcome.replicas) == (True, ())
    fleet.join("a2", group="a")
    fleet.period()
    assert fleet.enforced() == {"a2": True, "b1": True}


def test_replicas_that_do_not_report_are_named() -> None:
    fleet = fleet_of("a1", "a2")
    fleet.members["a2"].reports_arrive = False
    outcome = switched(fleet, "off")
    assert not outcome.confirmed
    text = list(lines_of(outcome, 3.0))
    assert text[:4] == [
        "Control is off for all groups, and those that come later.",
        "  a: 1 of 2 replicas confirmed",
        "Not confirmed within 3 s:",
        f"  a2 of a, last report {outcome.replicas[1].reported_s_ago:.1f} s ago",
    ]


def test_a_controller_that_died_before_a_replica_received_it_is_told_again() -> None:
    fleet = fleet_of("a1")
    ticks = iter(range(100))

    def sleep(_: float) -> None:
        if next(ticks) == 0:
            fleet.restart()  # the switch is lost with it
        else:
            fleet.period()

    outcome = enforce.switch(
        fleet.calls(), enforce=False, group=None, wait_s=5.0, clock=lambda: fleet.now_s, sleep=sleep
    )
    assert outcome.confirmed
    assert fleet.enforced() == {"a1": False}


def test_a_switch_for_all_that_comes_meanwhile_is_not_undone() -> None:
    fleet = fleet_of("a1", "b1")

    def sleep(_: float) -> None:
        fleet.calls()["v1"]("switch", True, None)  # somebody else, who is later
        fleet.period()

    outcome = enforce.switch(
        fleet.calls(), enforce=False, group="a", wait_s=5.0, clock=lambda: fleet.now_s, sleep=sleep
    )
    assert outcome.confirmed
    assert fleet.enforced() == {"a1": True, "b1": True}
    assert "    1 have been switched on again since" in lines_of(outcome, 5.0)


def test_a_replica_that_has_not_reported_to_a_restarted_controller_is_waited_for() -> None:
    fleet = fleet_of("a1", "a2")
    fleet.members["a2"].reports_arrive = False
    ticks = iter(range(100))

    def sleep(_: float) -> None:
        if next(ticks) == 1:
            fleet.restart()  # and a2 is in no table any more
        fleet.period()

    outcome = enforce.switch(
        fleet.calls(), enforce=False, group=None, wait_s=5.0, clock=lambda: fleet.now_s, sleep=sleep
    )
    assert [(r.replica, r.confirmed) for r in outcome.replicas] == [("a1", True), ("a2", False)]


def test_what_a_controller_confirmed_before_it_was_restarted_does_not_count() -> None:
    fleet = fleet_of("a1", "a2")
    fleet.members["a2"].reports_arrive = False
    ticks = iter(range(100))

    def sleep(_: float) -> None:
        if next(ticks) == 2:  # a1 has confirmed; the new controller never sees it
            fleet.restart()
            fleet.members["a1"].reports_arrive, fleet.members["a2"].reports_arrive = False, True
        fleet.period()

    outcome = enforce.switch(
        fleet.calls(), enforce=False, group=None, wait_s=5.0, clock=lambda: fleet.now_s, sleep=sleep
    )
    assert [(r.replica, r.confirmed) for r in outcome.replicas] == [("a1", False), ("a2", True)]
    assert not outcome.confirmed


def test_a_controller_that_has_just_started_is_given_time_to_receive_all_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(enforce, "SETTLED_S", SETTLED_S)
    fleet = fleet_of("a1")
    outcome = switched(fleet, "off", wait_s=7.0)
    assert outcome.confirmed
    assert fleet.now_s >= 7.0  # this controller's clock is the real one, and it is young


def test_two_versions_are_switched_together_and_one_that_cannot_be_is_named() -> None:
    fleet = Fleet("v1", "v2")
    fleet.join("a1", version="v1")
    fleet.join("a2", version="v2")
    fleet.period()
    assert switched(fleet, "off", group="g").confirmed
    assert fleet.enforced() == {"a1": False, "a2": False}

    def old(method: str, *args: Any) -> Any:
        raise UnansweredError("it is of a version that cannot be switched")

    calls = {**fleet.calls(), "v0": old}
    outcome = enforce.switch(
        calls,
        enforce=True,
        group=None,
        wait_s=1.0,
        clock=lambda: fleet.now_s,
        sleep=lambda _: fleet.period(),
    )
    assert fleet.enforced() == {"a1": True, "a2": True}
    assert (outcome.confirmed, list(outcome.unanswered)) == (False, ["v0"])
    assert "Not reached: the batch controller v0" in "\n".join(lines_of(outcome, 1.0))


@pytest.mark.parametrize("group", [None, "a"])
def test_where_no_controller_answers_nothing_was_switched(group: str | None) -> None:
    fleet = fleet_of("a1")
    fleet.controllers["v1"] = None
    clock = iter(range(100))
    with pytest.raises(BrimfulError, match=r"nothing was switched: .* \(v1: it is gone\)"):
        enforce.switch(
            fleet.calls(),
            enforce=False,
            group=group,
            wait_s=2.0,
            clock=lambda: float(next(clock)),
            sleep=lambda _: None,
        )


def test_a_switch_that_was_sent_and_not_answered_may_still_take_effect() -> None:
    def slow(method: str, *args: Any) -> Any:
        raise UnansweredError("it is slow", may_act=method == "switch")

    calls = {"v2": slow, "v1": slow}
    with pytest.raises(BrimfulError) as failed:
        enforce.switch(calls, enforce=False, group=None, wait_s=0.0)
    assert str(failed.value) == (
        "no batch controller answers (v2: it is slow; v1: it is slow); the switch was sent to v1,"
        " v2, and may still take effect there: `brimful status` shows it, and this command can be"
        " run again"
    )
    with pytest.raises(BrimfulError, match="nothing was switched"):  # the group was asked for first
        enforce.switch({"v1": slow}, enforce=False, group="g", wait_s=0.0)


def test_replicas_that_are_configured_to_advise_are_told_of() -> None:
    fleet = fleet_of("a1")
    fleet.join("a2", group="a", enforce=False)
    fleet.period()
    outcome = switched(fleet, "on")
    assert outcome.confirmed
    assert fleet.enforced() == {"a1": True, "a2": False}
    text = "\n".join(lines_of(outcome, 3.0))
    assert "1 only report, as they are configured (batching.enforce: false)" in text
    assert "again since" not in text


def test_of_two_switches_at_once_the_later_holds_and_the_first_is_told_so() -> None:
    fleet = fleet_of("a1")
    calls = fleet.calls()

    def sleep(_: float) -> None:
        calls["v1"]("switch", True, "a")
        fleet.period()
        fleet.period()

    outcome = enforce.switch(
        calls, enforce=False, group=None, wait_s=3.0, clock=lambda: fleet.now_s, sleep=sleep
    )
    assert fleet.enforced() == {"a1": True}
    assert "1 have been switched on again since" in "\n".join(lines_of(outcome, 3.0))


def test_without_replicas_it_says_so_and_holds_for_the_first() -> None:
    fleet = Fleet()
    outcome = switched(fleet, "off")
    assert outcome.confirmed
    assert list(lines_of(outcome, 3.0))[1] == "No replica is there now."
    fleet.join("a1")
    fleet.period()
    assert fleet.enforced() == {"a1": False}
