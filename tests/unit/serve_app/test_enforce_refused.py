"""``brimful enforce`` where the controller refuses a replica's reports."""

import pytest

from controller.errors import ReportError
from controller.records import to_wire
from serve_app.outcome import lines_of
from tests.unit.serve_app.test_enforce import fleet_of, settled, switched

__all__ = ["settled"]  # a fixture for every test here, too


def test_replicas_whose_reports_are_refused_are_counted_and_named() -> None:
    fleet = fleet_of("a1", "a2", "b1")
    controller = fleet.controllers["v1"]
    assert controller is not None

    def refuse() -> None:
        wire = to_wire(fleet.members["a2"].report(fleet.now_s)) | {"version": "older"}
        with pytest.raises(ReportError):
            controller.exchange(wire, fleet.members["a2"].config.model_dump())

    fleet.members["a2"].reports_arrive = False
    refuse()
    outcome = switched(fleet, "off")
    assert not outcome.confirmed
    assert [(r.group, r.replica) for r in outcome.refused] == [("a", "a2")]
    assert [r.replica for r in outcome.replicas] == ["a1", "b1"]
    text = list(lines_of(outcome, 3.0))
    assert text[1:4] == [
        "  a: 1 of 2 replicas confirmed",
        "  b: 1 of 1 replicas confirmed",
        "Not switched, since the controller refuses their reports; they decide by themselves:",
    ]
    assert text[4].startswith("  a2 of a: ")
    assert "older" in text[4]
    assert len(text) == 5
    assert switched(fleet, "off", "b").confirmed
    fleet.members["a2"].reports_arrive = True
    assert switched(fleet, "on").confirmed
