"""The published figures once more, with nothing searched."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks.fleet.__main__ as command
from benchmarks.fleet import bench
from benchmarks.fleet.course import Result
from benchmarks.fleet.kept import Kept
from benchmarks.fleet.starts import Starts

TIGHT, WIDE = "ray:target_ongoing_requests=9", "ray:target_ongoing_requests=8"


def made(day: str, spec: str, hours: float, attainment: float = 0.995) -> Result:
    return Result(day, spec.partition(":")[0], spec, attainment, hours, 1.0, None)


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two days that are kept, of which a search knows one setting each, and one for both."""
    path = tmp_path / "starts.json"
    known = {"day-1": {"ray": TIGHT}, "day-2": {"ray": WIDE}, "real days": {"ray": WIDE}}
    path.write_text(json.dumps(known))
    monkeypatch.setattr(command, "CACHE", tmp_path)
    monkeypatch.setattr(command, "Starts", lambda: Starts(path))
    monkeypatch.setattr(sys, "argv", ["bench", "--no-search", "--day", "day-1", "day-2"])
    kept = Kept(tmp_path / "elastic.json")
    for day in ("day-1", "day-2"):
        for spec, hours in (("oracle", 50.0), ("brimful", 60.0), (TIGHT, 75.0), (WIDE, 80.0)):
            kept.add(f"{day} 101 100", spec, replace(made(day, spec, hours), day=day))
    monkeypatch.setattr(bench, "Course", None)  # what is not kept would be run
    return path


def rows(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, float], str]:
    command.main()
    text = capsys.readouterr().out
    found = json.loads(text.splitlines()[-1])["rows"]
    return {row["id"]: row["value"] for row in found}, text


def test_each_rival_runs_only_at_the_setting_that_a_search_had_ended_with(
    starts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, text = rows(capsys)
    assert values["elastic_day_1_over_rival"] == 0.8
    assert values["elastic_day_2_over_rival"] == 0.75  # 9 would take fewer hours there, too
    assert values["elastic_real_days_over_one_setting"] == 0.75
    assert "of 8 figures are those of docs/results/elastic.md" in text  # not that of all days


def test_one_setting_that_does_not_keep_the_sla_on_a_day_is_none(
    starts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept(tmp_path / "elastic.json")
    kept.add("day-1 101 100", WIDE, made("day-1", WIDE, 80.0, attainment=0.98))
    values, _ = rows(capsys)
    assert "elastic_real_days_over_one_setting" not in values


def test_policies_can_be_left_out(
    starts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--policy", "wva"])
    values, text = rows(capsys)
    assert "elastic_day_1_over_oracle" in values and "elastic_day_1_over_rival" not in values
    assert "those of docs/results" not in text  # which has the best of all


def test_a_page_is_not_written_of_it(starts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--write"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
