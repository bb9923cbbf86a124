"""Replicas whose reports are refused: shown with the reason, bounded in number and time."""

from typing import Any

import pytest

from controller.errors import ConfigError, ReportError
from controller.fleet.actor import BatchController
from controller.fleet.refusals import KEPT_S, MOST, Refusals
from controller.records import to_wire
from tests.builders import batching, report


def told(replica: str, group: str = "g") -> dict[str, Any]:
    return {"group": group, "replica_id": replica}


def test_the_last_refusal_of_a_replica_is_kept_with_its_reason_on_one_line() -> None:
    refusals = Refusals()
    refusals.refused(told("a"), ReportError(["report.running: -1"]), 10.0)
    refusals.refused(told("a"), ValueError("two\n lines"), 12.0)
    assert refusals.snapshot(15.0) == [
        {"group": "g", "replica": "a", "reason": "two lines", "refused_s_ago": 3.0}
    ]


def test_an_accepted_report_ends_it() -> None:
    refusals = Refusals()
    for group in ("g", "h"):
        refusals.refused(told("a", group), ValueError("no"), 10.0)
    refusals.accepted("g", "a")
    refusals.accepted("g", "never refused")
    assert [one["group"] for one in refusals.snapshot(10.0)] == ["h"]


def test_no_more_are_kept_than_a_hundred_the_newest() -> None:
    refusals = Refusals()
    for n in range(MOST + 2):
        refusals.refused(told(f"r{n:03}"), ValueError("no"), float(n))
    refusals.refused(told("r002"), ValueError("again"), 200.0)
    refusals.refused(told("new"), ValueError("no"), 200.0)
    names = [one["replica"] for one in refusals.snapshot(150.0)]
    assert len(names) == MOST == 100
    assert ("r002" in names, "r003" in names, "r004" in names) == (True, False, True)


@pytest.mark.parametrize(("age_s", "kept"), [(KEPT_S, 1), (KEPT_S + 0.1, 0)])
def test_they_are_kept_for_three_of_the_longest_leases(age_s: float, kept: int) -> None:
    refusals = Refusals()
    refusals.refused(told("a"), ValueError("no"), 1.0)
    assert len(refusals.snapshot(1.0 + age_s)) == kept
    assert KEPT_S == 3 * 60


@pytest.mark.parametrize("nonsense", [None, "text", {}, {"group": ["g"], "replica_id": None}])
def test_whatever_was_sent_has_a_line(nonsense: Any) -> None:
    refusals = Refusals()
    refusals.refused(nonsense, ValueError(), 1.0)
    (one,) = refusals.snapshot(1.0)
    assert one["reason"] == "ValueError"
    assert isinstance(one["group"], str)
    assert isinstance(one["replica"], str)


def test_names_and_reasons_are_no_longer_than_a_few_lines() -> None:
    refusals = Refusals()
    refusals.refused(told("r" * 999, "g" * 999), ValueError("x" * 999), 1.0)
    (one,) = refusals.snapshot(1.0)
    assert {len(one[key]) for key in ("group", "replica", "reason")} == {300}


def test_the_controller_shows_whom_it_refuses_until_it_accepts_a_report() -> None:
    controller, block = BatchController(), batching().model_dump()
    with pytest.raises(ReportError):
        controller.exchange({**to_wire(report(replica_id="a")), "version": "0.0.9"}, block)
    with pytest.raises(ConfigError):
        controller.exchange(to_wire(report(replica_id="b")), {"mood": "good"})
    refused = controller.snapshot()["refused"]
    assert [(one["replica"], one["reason"][:22]) for one in refused] == [
        ("a", "report.version: '0.0.9"),
        ("b", "batching: unknown key "),
    ]
    controller.exchange(to_wire(report(replica_id="b", seq=2)), block)
    assert [one["replica"] for one in controller.snapshot()["refused"]] == ["a"]
