import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.errors import ConfigError
from simulator.fleet.days import PEAK_REPLICAS, find_days, real_days
from simulator.fleet.traffic import Rates, by_day, draw, read_rates, shipped_rates
from simulator.workloads.catalog import load_workload


def file_of(tmp_path: Path, **entry: Any) -> Path:
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"traffic": {"a": {"step_s": 60, **entry}}}, indent=1))
    return path


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"rate_per_s": [1, None, 2]}, "rate_per_s[1]"),
        ({"rate_per_s": [1, -2, 2]}, "rate_per_s[1]"),
        ({"rate_per_s": []}, "rate_per_s"),
        ({"rate_per_s": [0, 0]}, "rate_per_s is 0 in every step"),
        ({"rate_per_s": [1, 2], "gap_cv": [1]}, "gap_cv has 1 values, rate_per_s 2"),
        ({}, "rate_per_s: required key is missing"),
        ({"rate_per_s": [1, 2], "step_s": 0}, "step_s"),
        ({"rate_per_s": [1] * 13, "step_s": 7000}, "step_s is 7000, which does not divide a day"),
    ],
)
def test_a_wrong_file_gets_one_clear_line(tmp_path: Path, entry: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_rates(file_of(tmp_path, **entry))
    (problem,) = raised.value.problems
    assert says in problem and "rates.json:" in problem


def test_two_days_of_one_name_are_one_clear_line(tmp_path: Path) -> None:
    day = '"monday": {"step_s": 60, "rate_per_s": [1]}'
    path = tmp_path / "rates.json"
    path.write_text(f'{{"traffic": {{{day}, {day}}}}}')
    with pytest.raises(ConfigError) as raised:
        read_rates(path)
    assert raised.value.problems == [f"{path}:1: key 'monday' is given twice"]


def test_rates_go_straight_between_the_middles_of_steps() -> None:
    rates = Rates(60.0, (1.0, 3.0), (1.0, 1.0))
    assert rates.at(np.array([0.0, 30.0, 60.0, 75.0, 90.0, 120.0])).tolist() == [
        1.0, 1.0, 2.0, 2.5, 3.0, 3.0,
    ]  # fmt: skip


@pytest.mark.parametrize("two_phases", [False, True])
@pytest.mark.parametrize("cv", [1.0, 5.0])
def test_arrivals_come_at_the_rate_and_as_bursty(cv: float, two_phases: bool) -> None:
    rates = Rates(600.0, (20.0,) * 200, (cv,) * 200, two_phases)
    times = rates.arrivals_s(np.random.default_rng(3))
    assert (np.diff(times) >= 0).all() and times[-1] <= rates.seconds
    assert len(times) / rates.seconds == pytest.approx(20, rel=0.02 * cv)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


def test_no_request_comes_while_the_rate_is_0() -> None:
    rates = Rates(60.0, (10.0, 0.0, 0.0, 0.0, 10.0), (1.0,) * 5)
    times = rates.arrivals_s(np.random.default_rng(0))
    assert not ((times > 90) & (times < 210)).any()


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(ConfigError, match="not one request"):
        draw(Rates(1.0, (1e-9,), (1.0,)), load_workload("fixed:10,10"), 0)


def test_days_are_cut_and_scaled_to_their_peak() -> None:
    (name, rates), *rest = read_rates(shipped_rates()).items()
    assert not rest and len(by_day(rates)) == 14
    days = real_days(rates, "day")
    assert [day.name for day in days][:2] == ["day-1", "day-2"] and name == "servegen-m-small"
    assert all(max(day.rates.rate_per_s) == pytest.approx(PEAK_REPLICAS) for day in days)
    assert all(day.seconds == 86400 for day in days)


def test_days_are_found_by_name_and_in_files(tmp_path: Path) -> None:
    path = file_of(tmp_path, rate_per_s=[1, 2, 4])
    first, second = find_days(["step", str(path)], "fixed:10,10", 8.0)
    assert first.name == "step" and second.name == "a" and second.workload == "fixed:10,10"
    assert second.rates.rate_per_s == (2.0, 4.0, 8.0)
    with pytest.raises(ConfigError, match="day-1"):
        find_days(["day1"], "fixed:10,10", 8.0)
