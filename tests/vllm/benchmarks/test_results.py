"""``make results``, with few requests: each kind of contest runs and has its figures."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.contests.__main__ import run
from benchmarks.contests.catalog import LOADS, OFFLINE, Shifting
from benchmarks.contests.disturbances import DISTURBED
from benchmarks.contests.scenarios import Contest, Disturbance
from benchmarks.contests.settings import Settings
from benchmarks.report.workers import Bench

DISTURBANCE = Disturbance("cv20", LOADS[0].profile, LOADS[0].workload, 50.0, 4.0, 0.0, DISTURBED[2])


@pytest.mark.parametrize("one", [OFFLINE[0], Shifting("phases"), DISTURBANCE])
def test_a_small_part_has_all_its_figures(one: Contest, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "settings.json")
    with ThreadPoolExecutor(1) as pool:
        section = run(Bench(pool, (1,), small=True), [one], settings, again=False)
    values = {row.id: row.estimate.value for row in section.rows}
    assert f"{one.part}_best_{one.name}" in values
    assert all(value > 0 for value in values.values())
    assert f"| {one.name} | `adaptive` |" in section.markdown("make results")
    assert not (tmp_path / "settings.json").exists()
