"""What `make bench-elastic` keeps of its runs."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

import benchmarks.fleet.__main__ as bench
from benchmarks.fleet.contest import Result
from benchmarks.fleet.days import shipped_days
from tests.unit.benchmarks.fleet.fleets import GROUND


def made(spec: str, attainment: float, hours: float) -> Result:
    return Result("step", spec.partition(":")[0], spec, attainment, hours, 1.0, None)


def test_of_what_was_kept_the_best_is_shown_and_ours_only_of_todays_code() -> None:
    results = [
        made("oracle", 0.99, 50.0),
        made("ray:target_ongoing_requests=9", 0.995, 80.0),
        made("ray:target_ongoing_requests=8", 0.999, 90.0),
        made("brimful", 0.995, 60.0),
    ]
    at = f"step {GROUND.seed} {GROUND.startup_s:g}"
    kept = {f"{at} {r.spec}": r for r in results[:3]}
    kept[f"{at} brimful {bench.OUR_CODE}"] = results[3]
    kept[f"{at} brimful of another day"] = made("brimful", 1.0, 1.0)
    (day,) = (day for day in shipped_days() if day.name == "step")
    found, counts = bench.Bench(day, GROUND, kept).kept()
    assert found["ray tuned"].replica_hours == 80 and found["brimful"].replica_hours == 60
    assert counts == {"ray": 2, "brimful": 1}


def test_what_was_kept_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept.json"
    monkeypatch.setattr(bench, "KEPT", path)
    monkeypatch.setattr(bench, "FIDELITY", tmp_path / "none.md")
    one = made("ray", 0.9, float("inf"))
    path.write_text(json.dumps({"a": asdict(one)}))
    assert bench._read_kept(False) == {"a": one}
    assert bench._read_kept(True) == {}
