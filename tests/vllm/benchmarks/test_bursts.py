"""``make results``, A1 and A2, with few requests, and which static setting it prefers."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.report.workers import Bench
from benchmarks.results import a1_bursts as burst
from benchmarks.results import a2_turn as turn


@pytest.mark.parametrize("part", [burst, turn])
def test_a_small_part_has_all_its_figures(part: object) -> None:
    with ThreadPoolExecutor(1) as pool:
        section = part.run(Bench(pool, (1,), small=True))  # type: ignore[attr-defined]
    ids = [row.id for row in section.rows]
    assert len(ids) == len(set(ids)) >= 3
    assert section.markdown("make results")
