"""``brimful status``: the controller's knowledge as a table."""

from typing import Any

import pytest

from controller.fleet.loop import ControlLoop
from controller.records import BatchLimits, ReplicaReport
from serve_app.status import switched_off, table
from tests.builders import batching, histogram_of, limits, report


def row(**changes: Any) -> list[str]:
    """The one row of a loop that heard one replica, by column, after the replica's id."""
    loop = ControlLoop()
    loop.exchange(report(itl=histogram_of([0.02])), batching(), 10.0)
    snapshot = {"version": "0.1.0+0a1b2c3d", **loop.snapshot(12.5)}
    snapshot["groups"]["g"]["replicas"]["r1"].update(changes)
    shown = table(snapshot)
    assert shown.title == "Batch controller 0.1.0+0a1b2c3d"
    return [next(iter(column.cells)) for column in shown.columns][2:]


def test_a_replica_is_one_row() -> None:
    assert row() == [
        *("r1", "2.5 s ago", "leased", "on", "256", "bound", "10", "5", "10%", "21.1", "0", "-")
    ]


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (limits(capacity_per_s=3.14), "3.1"),
        (limits(capacity_per_s=0.0, sla_out_of_reach=True), "SLA out of reach"),
    ],
)
def test_its_capacity_or_why_there_is_none(known: BatchLimits, shown: str) -> None:
    assert row(limits=known)[-1] == shown


@pytest.mark.parametrize(
    ("seen", "known", "word"),
    [
        (report(), limits(), "on"),
        (report(enforced=False), limits(), "off"),
        (report(enforced=False), limits(enforce=False), "advice"),
    ],
)
def test_it_has_a_word_for_whether_its_limits_are_applied(
    seen: ReplicaReport, known: BatchLimits, word: str
) -> None:
    assert row(report=seen, limits=known)[3] == word


def test_it_says_for_which_groups_control_is_switched_off() -> None:
    loop = ControlLoop()
    for group in ("a", "b"):
        loop.exchange(report(group=group), batching(), 0.0)
    assert switched_off(loop.snapshot(0.0)) is None
    loop.switch(enforce=False, group="b", unix_s=1.0)
    said = "Control is switched off for {}; `brimful enforce on` ends that."
    assert switched_off(loop.snapshot(0.0)) == said.format("b")
    loop.switch(enforce=False, group=None, unix_s=1.0)
    assert switched_off(loop.snapshot(0.0)) == said.format("all groups")
