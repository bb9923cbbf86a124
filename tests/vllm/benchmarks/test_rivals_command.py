"""``make rivals``, as small as it can be: that it runs, and what its parts hand over."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.contests.entry import Entry, capacity
from benchmarks.contests.sweeps import Point, first_points
from benchmarks.contests.tuning import Setting
from benchmarks.report.workers import Bench
from benchmarks.rivals import r4_offline
from benchmarks.rivals.__main__ import asked
from benchmarks.rivals.r1_capacity import GROUNDS, Raced, rows_of
from replicas.profile_file import load_profile


def raced() -> Raced:
    """Two contests, two rivals, two seeds, made up."""
    azure, table = (next(c for c in GROUNDS if c.name == name) for name in ("azure", "h100-70b"))
    found = Raced((azure, table), ("sarathi", "ppas"))
    for contest in found.contests:
        found.per_s[contest.name, "adaptive"] = [2.0, 2.0]
        for rival, per_s in (("sarathi", [1.0, 2.5]), ("ppas", [1.6, 1.6])):
            found.tuned[contest.name, rival] = Point(rival)
            found.per_s[contest.name, rival] = per_s
    for rival in found.rivals:
        found.one[rival] = Point(rival)
    return found


def test_adaptive_is_held_against_the_best_rival_of_each_draw() -> None:
    rows = {row.id: row for row in rows_of(raced())}
    # 2 / 1.6 on the first draw, 2 / 2.5 on the second.
    assert rows["r1_tuned"].estimate.value == pytest.approx(1.0)
    assert rows["r1_tuned_azure"].estimate.low == pytest.approx(0.8)
    assert rows["r1_sarathi"].estimate.value == pytest.approx((2 * 0.8) ** 0.5)
    # The best with one setting for all is the one that leaves the least.
    assert rows["r1_one"].what.endswith("ppas")
    assert rows["r1_one"].estimate.value == pytest.approx(1.25)
    assert (rows["r1_tuned"].at_least, rows["r1_one"].at_least) == (0.99, 1.05)


def test_a_rival_is_raced_on_a_draw() -> None:
    contest = next(c for c in GROUNDS if c.name == "257-62")
    spec = first_points("refiner", Setting(40, 155), load_profile(contest.profile))[0].spec
    # The best static setting carries some 10 requests/s on longer runs, vLLM's default less than 1.
    assert 5 < capacity(Entry(contest, 100, True, spec, 0.9)) < 15


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
