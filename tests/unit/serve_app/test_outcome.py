"""What ``brimful enforce`` prints."""

from serve_app.outcome import Outcome, Refused, Replica, lines_of


def test_of_many_that_did_not_confirm_twenty_are_named() -> None:
    late = tuple(Replica("g", f"r{n:02}", False, True, True, 9.0) for n in range(23))
    text = list(lines_of(Outcome(False, None, late, {}), 10.0))
    assert "  and 3 more" in text
    assert "  r19 of g, last report 9.0 s ago" in text
    assert len(text) == 2 + 1 + 20 + 1 + 1


def test_a_replica_that_confirmed_is_counted_and_one_that_did_not_is_named() -> None:
    both = (
        Replica("g", "r0", True, True, True, 0.2),
        Replica("g", "r1", False, False, True, 7.25),
    )
    assert list(lines_of(Outcome(True, None, both, {"v0": "it is gone"}), 3.0)) == [
        "Control is on for all groups, and those that come later.",
        "  g: 1 of 2 replicas confirmed",
        "Not confirmed within 3 s:",
        "  r1 of g, last report 7.2 s ago",
        "Each of them takes the switch over as soon as it reaches the controller.",
        "Not reached: the batch controller v0 and its replicas (it is gone).",
        "Run the command again.",
    ]


def test_of_many_whose_reports_are_refused_twenty_are_named_and_all_counted() -> None:
    refused = tuple(Refused("g", f"r{n:02}", "it is of another version") for n in range(23))
    outcome = Outcome(True, None, (), {}, refused)
    text = list(lines_of(outcome, 10.0))
    assert not outcome.confirmed
    assert text[1] == "  g: 0 of 23 replicas confirmed"
    assert text[3] == "  r00 of g: it is of another version"
    assert text[-1] == "  and 3 more"
    assert len(text) == 3 + 20 + 1
