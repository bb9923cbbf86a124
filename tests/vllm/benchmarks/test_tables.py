"""``make tables``, with few requests."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.papers.dynamic_batching import PARTS
from benchmarks.report.workers import Bench
from simulator.replay import capacity


@pytest.mark.parametrize("name", PARTS)
def test_a_small_part_has_all_its_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "PRECISION", 0.5)
    with ThreadPoolExecutor(1) as pool:
        text, rows = PARTS[name](Bench(pool, (1,), small=True))
    ids = [row.id for row in rows]
    assert len(ids) == len(set(ids)) >= 7
    assert all(row.estimate.value >= 0 for row in rows)
    assert text.startswith("## ")
