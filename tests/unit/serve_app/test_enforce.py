"""``brimful enforce`` against controllers and replicas that are here, without Ray."""

import argparse
from collections.abc import Callable

import pytest

from controller.errors import BrimfulError, ReportError
from controller.records import to_wire
from serve_app import enforce
from serve_app.enforce import Outcome
from tests.fleet import Fleet


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controllers have been there for long."""
    monkeypatch.setattr(enforce, "SETTLED_S", 0.0)


def switched(
    fleet: Fleet,
    state: str,
    group: str | None = None,
    wait_s: float = 3.0,
    meanwhile: Callable[[float], None] | None = None,
) -> Outcome:
    """The command; while it waits, replicas report."""
    return enforce.switch(
        fleet.calls(),
        enforce=state == "on",
        group=group,
        wait_s=wait_s,
        clock=lambda: fleet.now_s,
        sleep=meanwhile or (lambda _: fleet.period()),
    )


def fleet_of(*names: str) -> Fleet:
    """Replicas named by their group and a number, each with one report."""
    fleet = Fleet()
    for name in names:
        fleet.join(name, group=name[0])
    fleet.period()
    return fleet


def test_it_returns_when_every_replica_has_confirmed():
    fleet = fleet_of("a1", "a2", "b1")
    outcome = switched(fleet, "off")
    assert outcome.confirmed
    assert list(outcome.replicas) == [("a", "a1"), ("a", "a2"), ("b", "b1")]
    assert set(fleet.enforced().values()) == {False}
    fleet.join("a3", group="a")
    fleet.join("c1", group="c")
    fleet.period()
    assert fleet.enforced()["a3"] is fleet.enforced()["c1"] is False
    assert switched(fleet, "on").confirmed
    assert set(fleet.enforced().values()) == {True}


def test_of_one_group_the_others_are_left_as_they_are():
    fleet = fleet_of("a1", "b1")
    outcome = switched(fleet, "off", group="a")
    assert list(outcome.replicas) == [("a", "a1")]
    assert fleet.enforced() == {"a1": False, "b1": True}
    switched(fleet, "off")
    switched(fleet, "on", group="b")
    assert fleet.enforced() == {"a1": False, "b1": True}
    switched(fleet, "on")
    assert fleet.enforced() == {"a1": True, "b1": True}


def test_a_group_that_does_not_exist_is_refused_with_those_that_do():
    fleet = fleet_of("a1", "b1")
    with pytest.raises(BrimfulError) as refused:
        switched(fleet, "off", group="c")
    assert str(refused.value) == "--group: 'c' does not exist; the groups are: a, b"
    assert fleet.enforced() == {"a1": True, "b1": True}
    with pytest.raises(BrimfulError, match="'c' does not exist; no replica is there"):
        switched(Fleet(), "off", group="c")


def test_replicas_that_do_not_report_are_named():
    fleet = fleet_of("a1", "a2")
    fleet.members["a2"].reports_arrive = False
    outcome = switched(fleet, "off")
    assert not outcome.confirmed
    count, _, named = outcome.lines()
    assert count == "  a: 1 of 2 replicas confirmed"
    assert named.startswith("  a2 of a: last report ")


def test_a_controller_that_died_before_a_replica_received_it_is_told_again():
    fleet = fleet_of("a1")
    ticks = iter(range(100))

    def sleep(_: float) -> None:
        if next(ticks) == 0:
            fleet.restart()  # the switch is lost with it, and nobody has reported
        else:
            fleet.period()

    assert switched(fleet, "off", wait_s=5.0, meanwhile=sleep).confirmed
    assert fleet.enforced() == {"a1": False}


@pytest.mark.parametrize("group", [None, "a"])
def test_where_no_controller_answers_nothing_was_switched(group):
    fleet = fleet_of("a1")
    fleet.controller = None
    with pytest.raises(BrimfulError, match=r"no batch controller answers \(v1: it is gone\)"):
        switched(fleet, "off", group, 2.0)


def test_replicas_whose_reports_are_refused_are_counted_and_named():
    fleet = fleet_of("a1", "a2", "b1")
    controller, member = fleet.controller, fleet.members["a2"]
    assert controller is not None
    member.reports_arrive = False
    wire = to_wire(member.report(fleet.now_s)) | {"version": "older"}
    with pytest.raises(ReportError):
        controller.exchange(wire, member.config.model_dump())
    outcome = switched(fleet, "off")
    assert not outcome.confirmed
    *counts, _, named = outcome.lines()
    assert counts == ["  a: 1 of 2 replicas confirmed", "  b: 1 of 1 replicas confirmed"]
    assert named.startswith("  a2 of a: its report is refused") and "older" in named
    assert switched(fleet, "off", "b").confirmed
    member.reports_arrive = True
    assert switched(fleet, "on").confirmed


def arguments(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    enforce.add_arguments(parser)
    return parser.parse_args(argv)


@pytest.mark.parametrize(("arrives", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_all_confirmed(arrives, status, monkeypatch, capsys):
    fleet = fleet_of("a1")
    fleet.members["a1"].reports_arrive = arrives
    monkeypatch.setattr(enforce, "connect", lambda address: fleet.calls())
    monkeypatch.setitem(enforce.switch.__kwdefaults__, "sleep", lambda _: fleet.period())
    monkeypatch.setitem(enforce.switch.__kwdefaults__, "wait_s", 0.05)
    assert enforce.run(arguments("off")) == status
    assert capsys.readouterr().out.startswith("Control is off for all groups, and those that come")
