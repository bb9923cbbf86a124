"""What grew between the second part of a soak and its last."""

import pytest

from benchmarks.faults.client import Outcome
from benchmarks.faults.soak import Sample, section


def test_the_last_part_is_held_against_the_second() -> None:
    samples = [Sample(10.0 * i, 100.0 + i, 50 + 10 * (i >= 6)) for i in range(8)]
    outcomes = [Outcome(float(i), "whole", 1, 0.1 if i < 60 else 0.2) for i in range(80)]
    page = section(samples, [*outcomes, Outcome(79.5, "event", 1, 0.1)], 80.0)
    rows = {row.id: row for row in page.rows}
    assert rows["soak_rss"].estimate.value == pytest.approx(106.5 / 102.5)
    assert rows["soak_handles"].estimate.value == pytest.approx(60 / 50)
    assert rows["soak_handles"].met is False
    assert rows["soak_ttft_p50"].estimate.value == pytest.approx(2.0)
    assert rows["soak_not_whole"].estimate.value == 1
