"""Where a search begins."""

import json
from pathlib import Path

import pytest

from benchmarks.fleet.contest import GRIDS
from benchmarks.fleet.one_for_all import ALL_DAYS, REAL_DAYS, OneForAll
from benchmarks.fleet.starts import FILE, Starts
from controller.errors import ConfigError
from simulator.fleet.course import Result
from simulator.fleet.days import shipped_days
from simulator.fleet.policies import parse_policy
from tests.unit.simulator.fleet.fleets import GROUND


def made(day: str, spec: str) -> Result:
    return Result(day, spec.partition(":")[0], spec, 0.995, 60.0, 1.0, None)


def test_what_was_best_is_kept_by_day(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    assert Starts(path).of("a", "ray") is None
    Starts(path).keep({"a": {"ray tuned": made("a", "ray:x=1")}, "b": {}}, {}, {})
    found = {"ray tuned": made("b", "ray:x=2"), "oracle": made("b", "oracle")}
    Starts(path).keep({"b": found}, {}, {})
    starts = Starts(path)
    assert [starts.of(day, "ray") for day in ("a", "b", "c")] == ["ray:x=1", "ray:x=2", None]
    assert starts.of("b", "wva") is None


def test_what_a_search_that_was_cut_short_has_found_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    Starts(path).keep({"a": {"ray tuned": made("a", "ray:x=1")}}, {}, {})
    other = {"a": {"ray tuned": made("a", "ray:x=9"), "wva tuned": made("a", "wva:y=1")}}
    Starts(path).keep(other, {"a": {"ray": 2}}, {})
    assert (Starts(path).of("a", "ray"), Starts(path).of("a", "wva")) == ("ray:x=1", "wva:y=1")


def test_a_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    path.write_text('{"a": ["ray"]}')
    with pytest.raises(ConfigError, match=r"starts\.json:1"):
        Starts(path)


def test_the_best_with_one_setting_is_kept_by_its_group_of_days(tmp_path: Path) -> None:
    path = tmp_path / "starts.json"
    one = made("a", "ray:x=2")
    Starts(path).keep({}, {}, {REAL_DAYS: OneForAll(one.spec, {"a": one}), ALL_DAYS: None})
    assert Starts(path).of(REAL_DAYS, "ray") == "ray:x=2"
    assert Starts(path).of(ALL_DAYS, "ray") is None


def test_what_is_shipped_is_of_policies_and_days_that_there_are() -> None:
    starts, days = Starts(), {day.name for day in shipped_days()}
    assert any(starts.of(day, name) for day in days for name in GRIDS)
    for day, specs in json.loads(FILE.read_text()).items():
        assert day in days | {REAL_DAYS, ALL_DAYS}
        for name, spec in specs.items():
            assert name in GRIDS and spec.startswith(f"{name}:")
            parse_policy(spec, GROUND, {"min_replicas": 1, "max_replicas": 9})
