"""``make rivals``, as small as it can be: that it runs, and what its parts hand over."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.contests.contest import Draw, Task
from benchmarks.contests.entry import (
    Choice,
    Chosen,
    Entry,
    Tuned,
    capacity,
    choose,
    raced,
    tune_static,
)
from benchmarks.contests.race import Race
from benchmarks.contests.sweeps import CAP, Point, first_points
from benchmarks.contests.tuning import Setting
from benchmarks.report.workers import Bench
from benchmarks.rivals import r1_capacity, r4_offline
from benchmarks.rivals.__main__ import asked
from benchmarks.rivals.r1_capacity import GROUNDS
from benchmarks.rivals.r1_raced import Raced, rows_of
from benchmarks.rivals.settings import Settings
from replicas.profiles.profile_file import load_profile


def two_contests() -> Raced:
    """Two contests, three rivals, two seeds, made up; one rival is far behind."""
    azure, table = (next(c for c in GROUNDS if c.name == name) for name in ("azure", "h100-70b"))
    found = Raced((azure, table), ("sarathi", "ppas", "gradient2"))
    for contest in found.contests:
        found.pilot[contest.name] = 0.9
        found.per_s[contest.name, "adaptive"] = [2.0, 2.0]
        for rival, per_s in (("sarathi", [1.0, 2.5]), ("ppas", [1.6, 1.6])):
            found.tuned[contest.name, rival] = Tuned(Point(rival), 0.6)
            found.per_s[contest.name, rival] = per_s
        found.tuned[contest.name, "gradient2"] = Tuned(Point("gradient2"), 0.3)
    for rival, frac in (("sarathi", 0.6), ("ppas", 0.59), ("gradient2", 0.3)):
        found.one[rival] = Chosen(Point(rival), (frac,))
    return found


def test_adaptive_is_held_against_the_best_rival_of_each_draw() -> None:
    rows = {row.id: row for row in rows_of(two_contests())}
    # 2 / 1.6 on the first draw, 2 / 2.5 on the second.
    assert rows["r1_tuned"].estimate.value == pytest.approx(1.0)
    assert rows["r1_tuned_azure"].estimate.low == pytest.approx(0.8)
    # Of each rival by itself there is the pilot's draw, on which it was tuned.
    assert rows["r1_sarathi"].estimate.value == pytest.approx(1.5)
    assert rows["r1_gradient2"].estimate.value == pytest.approx(3.0)
    # The best with one setting for all is the one that leaves the least.
    assert rows["r1_one"].what.endswith("ppas")
    assert rows["r1_one"].estimate.value == pytest.approx(1.25)
    assert (rows["r1_tuned"].at_least, rows["r1_one"].at_least) == (0.99, 1.05)


def test_only_a_rival_near_the_best_is_searched_on_every_draw() -> None:
    found = two_contests()
    assert found.worth(found.contests[0]) == ["sarathi", "ppas"]
    assert found.worth_one == ["sarathi", "ppas"]
    assert raced([0.95, 1.0, 0.94], 0.95) == [True, True, False]


def test_one_setting_for_all_is_the_one_with_the_best_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what cannot be the best is not looked at in every contest."""
    contests = tuple(c for c in GROUNDS if c.name in ("257-62", "azure"))
    reached = {
        ("azure", 40): 0.9, ("azure", 50): 0.8, ("azure", 60): 0.2,
        ("257-62", 40): 0.5, ("257-62", 50): 0.8, ("257-62", 60): 0.2,
    }  # fmt: skip
    asked: list[tuple[str, int]] = []

    def enter(race: Race, spec: str) -> bool:
        cap = int(spec.rpartition("=")[2])
        limit = race._course.fluid_limit_per_s
        name = next(c.name for c in contests if limits[c.name] == limit)
        asked.append((name, cap))
        per_s = reached[name, cap] * limit
        if per_s > race.per_s:
            race.per_s, race.spec = per_s, spec
            return True
        return False

    limits = {c.name: Draw(Task(c, small=True)).course.fluid_limit_per_s for c in contests}
    monkeypatch.setattr(Race, "enter", enter)
    points = tuple(Point("sarathi", ((CAP, cap),)) for cap in (40, 50, 60))
    best = {name: max(v for (n, _), v in reached.items() if n == name) for name in limits}
    tuned = tuple(Tuned(points[0], best[c.name]) for c in contests)
    chosen = choose(Choice(contests, True, points, tuned))
    assert chosen.point == points[1]
    assert chosen.fracs == pytest.approx((0.8, 0.8))
    # 0.2 of one limit leaves nothing to win in the other.
    assert [cap for _, cap in asked] == [40, 40, 50, 50, 60]


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


def test_a_rival_is_raced_on_a_draw() -> None:
    contest = next(c for c in GROUNDS if c.name == "257-62")
    spec = first_points("refiner", Setting(40, 155), load_profile(contest.profile))[0].spec
    # The best static setting carries some 10 requests/s on longer runs, vLLM's default less than 1.
    assert 5 < capacity(Entry(contest, 100, True, spec, 0.9)) < 15


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


@pytest.mark.parametrize(
    ("only", "found"),
    [
        (["R1", "R4"], {"R1": [], "R4": []}),
        (["R4:heavy-tail", "R4:shifting"], {"R4": ["heavy-tail", "shifting"]}),
    ],
)
def test_single_workloads_can_be_asked_for(only: list[str], found: dict[str, list[str]]) -> None:
    assert asked(only) == found
