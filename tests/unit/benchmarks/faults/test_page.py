"""The page of faults, from what was counted."""

import math

from benchmarks.faults.__main__ import section
from benchmarks.faults.client import Outcome, count
from benchmarks.faults.faults import Found


def test_what_was_found_of_each_fault_is_one_page() -> None:
    cut = count([Outcome(0.0, "whole", 1, 0.5), Outcome(1.0, "cut", 1, 0.5, "x")])
    failed = count([Outcome(0.0, "failed", 3, None, "503 no_replica")])
    found = {"replica": Found(cut, 30.0, {}), "node": Found(failed, math.nan, {"KV tokens": 2})}
    page = section(found)
    rows = {row.id: (row.estimate.value, row.met) for row in page.rows}
    assert rows == {
        "fault_replica_failed": (0, True),
        "fault_replica_lost": (1, False),
        "fault_node_failed": (1, None),
        "fault_node_lost": (0, True),
        "fault_node_left": (2, False),
    }
    assert "1 x cut: x" in page.markdown("make")
