"""``brimful status``: the controller's knowledge as a table."""

from typing import Any

import pytest

from controller.fleet.loop import ControlLoop
from controller.records import BatchLimits
from serve_app.status import table
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
        *("r1", "2.5 s ago", "leased", "256", "bound", "10", "5", "10%", "21.1", "0", "-")
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
