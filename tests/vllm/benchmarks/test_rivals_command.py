"""``make rivals``, as small as it can be: that it runs, and what its parts hand over."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.contests.contest import Task
from benchmarks.contests.entry import (
    tune_static,
)
from benchmarks.contests.race import Race
from benchmarks.report.workers import Bench
from benchmarks.rivals import r1_capacity, r4_offline
from benchmarks.rivals.r1_capacity import GROUNDS
from benchmarks.rivals.settings import Settings


def test_r1_runs_from_the_tuning_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With capacities made up: each spec's is a number of its own, the same on every draw."""

    def enter(race: Race, spec: str) -> bool:
        share = 0.5 + zlib.crc32(spec.encode()) % 1000 / 2500  # 0.5 to 0.9 of the fluid limit
        per_s = share * race._course.fluid_limit_per_s
        if per_s > race.per_s:
            race.per_s, race.spec = per_s, spec
            return True
        return False

    monkeypatch.setattr(Race, "enter", enter)
    settings = Settings(tmp_path / "settings.json")
    with ThreadPoolExecutor(1) as pool:
        bench = Bench(pool, (11, 12), small=True)
        both = r1_capacity.run(bench, ("257-62", "azure"), settings)
    found = {row.id: row.estimate.value for row in both.rows}
    own, tuned = 0.5 + zlib.crc32(b"adaptive") % 1000 / 2500, found["r1_sarathi"]
    static = tune_static(Task(next(c for c in GROUNDS if c.name == "azure"), small=True))
    assert 0.5 <= static.frac <= 0.9
    assert tuned >= own / 0.9
    assert found["r1_tuned"] == pytest.approx(min(found["r1_sarathi"], found["r1_ppas"]), rel=0.3)
    assert {"r1_one", "r1_tuned_azure", "r1_tuned_257-62"} < set(found)
    text = both.markdown("make rivals")
    assert "one for all" in text and text.count("`adaptive`") > 2
    # From the settings that the searches ended with the same figures come, and nothing is tuned.
    settings.write("R1")
    known = Settings(tmp_path / "settings.json", searches=False)
    monkeypatch.setattr(r1_capacity, "tune_rival", None)
    with ThreadPoolExecutor(1) as pool:
        bench = Bench(pool, (11, 12), small=True)
        again = r1_capacity.run(bench, ("257-62", "azure"), known)
        assert again.rows == tuple(row for row in both.rows if row.id != "r1_one")
        some = r1_capacity.run(replace(bench, rivals=("ppas",)), ("azure",), known)
    assert "`ppas:" in some.tables[1] and "sarathi" not in some.tables[1]
    (best,) = (row for row in some.rows if row.id == "r1_tuned_azure")
    assert best.at_least is None and "of ppas" in best.what  # another may be better


def test_offline_runs_and_counts_every_rival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(1) as pool:
        bench = Bench(pool, (11,), small=True)
        settings = Settings(tmp_path / "settings.json")
        section = r4_offline.run(bench, (), settings)
        settings.write("R4")
        known = Settings(tmp_path / "settings.json", searches=False)
        monkeypatch.setattr(r4_offline, "offline_points", None)
        assert r4_offline.run(bench, (), known) == section
    assert [row.id for row in section.rows] == ["r4_fixed-128-128", "r4_all"]
    assert section.rows[0].at_least == 0.995
    page = section.markdown("make rivals")
    assert all(f"`{name}" in page for name in ("adaptive", "static", "sarathi", "ppas"))
