"""``make rivals``, as small as it can be: that it runs, and what its parts hand over."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.report.workers import Bench
from benchmarks.rivals import r1_capacity, r4_offline
from benchmarks.rivals.__main__ import asked


def test_capacity_runs_and_holds_adaptive_against_the_best_of_the_rivals() -> None:
    with ThreadPoolExecutor(1) as pool:
        section = r1_capacity.run(Bench(pool, (11,), small=True), ("257-62",))
    values = {row.id: row for row in section.rows}
    assert list(values) == ["r1_tuned", "r1_one", "r1_tuned_257-62", "r1_sarathi", "r1_ppas"]
    best, one = values["r1_tuned"], values["r1_one"]
    assert (best.at_least, one.at_least) == (0.99, 1.05)
    least = min(values["r1_sarathi"].estimate.value, values["r1_ppas"].estimate.value)
    assert best.estimate.value == pytest.approx(least)
    assert "one for all" in section.markdown("make rivals")


def test_offline_runs_and_counts_every_rival() -> None:
    with ThreadPoolExecutor(1) as pool:
        section = r4_offline.run(Bench(pool, (11,), small=True), ())
    assert [row.id for row in section.rows] == ["r4_fixed-128-128", "r4_all"]
    assert section.rows[0].at_least == 0.995
    page = section.markdown("make rivals")
    assert all(f"`{name}" in page for name in ("adaptive", "static", "sarathi", "ppas"))


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (["R1", "R4"], {"R1": [], "R4": []}),
        (["R4:heavy-tail", "R4:shifting"], {"R4": ["heavy-tail", "shifting"]}),
    ],
)
def test_single_workloads_can_be_asked_for(only: list[str], found: dict[str, list[str]]) -> None:
    assert asked(only) == found
