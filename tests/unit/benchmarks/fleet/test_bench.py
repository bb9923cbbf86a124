"""What `make bench-elastic` shows of what it kept."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks.fleet.__main__ as command
from benchmarks.fleet.bench import Bench
from benchmarks.fleet.contest import GRIDS, Grid
from benchmarks.fleet.kept import Kept
from benchmarks.fleet.starts import Starts
from controller.errors import ConfigError
from simulator.fleet.course import Result
from simulator.fleet.days import shipped_days
from tests.unit.simulator.fleet.fleets import GROUND

AT = f"step {GROUND.seed} {GROUND.startup_s:g}"


def made(spec: str, attainment: float = 0.995, hours: float = 60.0) -> Result:
    return Result("step", spec.partition(":")[0], spec, attainment, hours, 1.0, None)


def benches(tmp_path: Path, *results: Result) -> Bench:
    kept = Kept(tmp_path / "kept.json")
    for one in results:
        kept.add(AT, one.spec, one)
    (day,) = (day for day in shipped_days() if day.name == "step")
    return Bench(day, GROUND, kept, makes=False)


def test_of_what_was_kept_the_best_is_shown_and_which_search_was_cut_short(tmp_path: Path) -> None:
    ours, oracle = made("brimful"), made("oracle", hours=50.0)
    nine = made("ray:target_ongoing_requests=9", hours=80.0)
    eight = made("ray:target_ongoing_requests=8", hours=90.0)
    found, cut = benches(tmp_path, ours, oracle, nine, eight).all(list(GRIDS))
    assert found == {"oracle": oracle, "brimful": ours, "ray tuned": nine}
    assert cut == {**dict.fromkeys(GRIDS, 0), "ray": 2}


@pytest.mark.parametrize(("hours", "searched"), [(77.0, False), (79.0, True)])
def test_a_rival_far_dearer_than_the_best_rival_need_not_be_searched_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: float, searched: bool
) -> None:
    """The best one takes 60 hours, 1.3 times that is 78; ours and the oracle take fewer."""
    sides = {"upscale_delay_s": (0, 30), "look_back_period_s": (20, 60)}
    monkeypatch.setitem(GRIDS, "dynamo-throughput", Grid("engine", (1,), {}))
    monkeypatch.setitem(GRIDS, "ray", Grid("target_ongoing_requests", (1,), sides))
    kept = [made("brimful", hours=40.0), made("oracle", hours=30.0)]
    kept += [made("dynamo-throughput:engine=1", hours=60.0)]
    ray = "ray:target_ongoing_requests=1,upscale_delay_s={},look_back_period_s={}"
    # Each setting was changed in turn; a second round would change the first beside the second.
    kept += [made(ray.format(0, 20), hours=90.0), made(ray.format(30, 20), hours=95.0)]
    kept += [made(ray.format(0, 60), hours=hours)]
    found, cut = benches(tmp_path, *kept).all([])
    # What both would give is not kept: a search that wants it is cut short.
    assert ("ray" not in cut) is searched
    assert found["ray tuned"].replica_hours == hours


def test_a_run_made_later_that_is_better_than_a_search_found_is_taken(tmp_path: Path) -> None:
    eight = made("ray:target_ongoing_requests=8", hours=90.0)
    nine = made("ray:target_ongoing_requests=9", hours=80.0)
    bench = benches(tmp_path, made("brimful"), made("oracle"), eight, nine)
    found = {"brimful": made("brimful"), "ray tuned": eight}
    assert bench.with_later_runs(found) == {**found, "ray tuned": nine}


@pytest.mark.parametrize(
    ("kept", "missing"), [("brimful", "oracle"), ("oracle", "brimful"), ("ray:x=1", "oracle")]
)
def test_a_day_without_ours_or_the_oracle_is_one_clear_line(
    tmp_path: Path, kept: str, missing: str
) -> None:
    with pytest.raises(ConfigError, match=f"step: no run of {missing} is kept of this code"):
        benches(tmp_path, made(kept)).all(list(GRIDS))


def test_the_bench_shows_the_rival_with_one_setting_for_its_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rival = "dynamo-throughput:engine=1"
    for name in GRIDS:
        monkeypatch.setitem(GRIDS, name, Grid("engine", (1,), {}))
    monkeypatch.setattr(command, "CACHE", tmp_path)
    monkeypatch.setattr(command, "_fidelity", lambda ground: "")
    kept = Kept(tmp_path / "elastic.json")
    for day, hours in (("step", 60.0), ("bursts", 80.0)):
        for spec in ("brimful", "oracle", rival):
            kept.add(f"{day} 101 100", spec, replace(made(spec, hours=hours), day=day))
    argv = ["bench", "--day", "step", "bursts", "--kept", "--policy", "dynamo-throughput"]
    monkeypatch.setattr(sys, "argv", [*argv, "--from-usual"])
    command.main()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    values = {row["id"]: row["value"] for row in last["rows"]}
    assert values["elastic_all_days_over_one_setting"] == 1.0
    assert values["elastic_step_over_rival"] == 1.0


def test_a_search_begins_with_what_was_best_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRIDS, "ray", Grid("target_ongoing_requests", (1, 2, 4), {}))
    four = made("ray:target_ongoing_requests=4", hours=70.0)
    bench = benches(tmp_path, made("brimful"), made("oracle"), four)
    assert "ray" in bench.all([])[1]  # halving would ask for 2 first
    (tmp_path / "starts.json").write_text(json.dumps({"step": {"ray": four.spec}}))
    there = Bench(bench.day, GROUND, Kept(tmp_path / "kept.json"), makes=False,
                  starts=Starts(tmp_path / "starts.json"))  # fmt: skip
    found, cut = there.all([])
    assert "ray" not in cut and found["ray tuned"] == four


def test_a_search_from_the_usual_settings_is_found_whole_though_another_begin_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRIDS, "ray", Grid("target_ongoing_requests", (1, 2, 4), {}))
    two = made("ray:target_ongoing_requests=2", hours=70.0)
    four = made("ray:target_ongoing_requests=4", attainment=0.9)
    between = [made(f"ray:target_ongoing_requests={x}", attainment=0.9) for x in
               (2.828, 2.378, 2.181)]  # fmt: skip
    kept = [made("brimful"), made("oracle"), two, four, *between]
    (tmp_path / "starts.json").write_text(
        json.dumps({"step": {"ray": "ray:target_ongoing_requests=1"}})
    )
    bench = benches(tmp_path, *kept)
    there = Bench(bench.day, GROUND, Kept(tmp_path / "kept.json"), makes=False,
                  starts=Starts(tmp_path / "starts.json"))  # fmt: skip
    found, cut = there.all([])
    assert "ray" not in cut and found["ray tuned"] == two
