"""Published capacity beside what is served (``benchmarks.disturbed.published``)."""

import pytest

from benchmarks.disturbed.published import Task, measure
from benchmarks.disturbed.rows import all_rows

BY_ID = {row.id: row for row in all_rows()}


def test_undisturbed_the_published_capacity_is_what_is_served() -> None:
    found = measure(Task(BY_ID["257-62@7 nothing"], 1, small=True))
    assert found.published_per_s == pytest.approx(found.served_per_s, rel=0.15)
    assert found.deviation < 0.05
    assert found.none == 0
    assert found.late_share < 0.01
