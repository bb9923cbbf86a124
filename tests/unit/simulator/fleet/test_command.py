"""``brimful fleet``: its policies, its days."""

import json
from pathlib import Path

import numpy as np
import pytest

from controller.errors import ConfigError
from serve_app import cli
from serve_app.config import AUTOSCALING_POLICY, parse_scaling
from serve_app.scaling.reading import PUBLISHED
from simulator.fleet.policies import parse_policy
from simulator.fleet.traffic import Rates
from tests.unit.simulator.fleet.fleets import SCENARIO


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--min-replicas", "5", "--max-replicas", "4"], "min_replicas=5 is not allowed"),
        (["--policy", "hpa"], "policy: unknown"),
        (["--policy", "brimful:drain=3"], "drain"),
        (["--day", "monday"], "day: unknown"),
        (["--day", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--max-replicas", "500"], "at most 200"),
        (["--day", "step", "--overflow", "price=1"], "base=N or quantile=SHARE"),
        (["--day", "step", "--itl", "0.1"], "one replica does not keep it"),
    ],
)
def test_bad_input_gets_one_line_each(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["fleet", *args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and says in line


def test_a_day_of_a_file_by_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "day.json"
    path.write_text(json.dumps({"traffic": {"ours": {"step_s": 120, "rate_per_s": [1, 3, 1]}}}))
    asked = ["fleet", "--day", str(path), "--workload", "fixed:2000,400", "--peak", "3"]
    asked += ["--policy", "brimful", "ray:target_ongoing_requests=9", "--startup", "30"]
    assert cli.main([*asked, "--json"]) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["policy"] for line in lines] == ["brimful", "ray"]
    progress = [line for line in said.err.splitlines() if line.startswith("simulating ours ")]
    assert progress[0] == "simulating ours brimful ..." and len(progress) == 2  # no terminal
    assert all(0 < line["attainment"] <= 1 and line["replica_hours"] > 0.1 for line in lines)


BOUNDS = {"min_replicas": 1, "max_replicas": 9}


def test_ours_is_built_as_serve_app_builds_it() -> None:
    policy = parse_policy("brimful:target_utilization=0.7,upscale_delay_s=5", SCENARIO, BOUNDS)
    built = policy.autoscaling["policy"]
    assert built["policy_function"] == AUTOSCALING_POLICY
    expected = parse_scaling({"target_utilization": 0.7}).model_dump()
    assert expected.items() <= built["policy_kwargs"].items()
    assert policy.autoscaling["upscale_delay_s"] == 5 and policy.reads == PUBLISHED


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("rays", "policy: unknown"),
        ("ray:target=3", "policy ray:target=3"),
        ("ray:min_replicas", "'min_replicas' is not allowed: key=value"),
        ("ray:target_ongoing_requests=many", "target_ongoing_requests='many' is not allowed"),
        ("ray:min_replicas=10", "min_replicas=10 is not allowed: at most max_replicas=9"),
        ("brimful:target_utilisation=0.7", "target_utilisation"),
        ("brimful:target_utilization=1.7", "target_utilization"),
        ("brimful:upscale_delay_s=-1", "upscale_delay_s: -1 is not allowed"),
        ("brimful:max_replicas=100000", "max_replicas=100000 is not allowed: at most 200"),
        ("ray:min_replicas=0,max_replicas=0", "max_replicas: 0 is not allowed"),
        ("ray:look_back_period_s=-5", "look_back_period_s: -5 is not allowed"),
        ("ray:target_ongoing_requests=-1", "target_ongoing_requests: -1 is not allowed"),
        ("ray:upscaling_factor=0", "upscaling_factor: 0 is not allowed"),
        ("dynamo-load:itl_s=.nan", "itl_s: nan is not allowed"),
        ("dynamo-throughput:predictor=2", "predictor: 2 is not allowed"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(spec: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_policy(spec, SCENARIO, BOUNDS)
    (problem,) = raised.value.problems
    assert says in problem


def test_rates_go_straight_between_the_middles_of_steps() -> None:
    rates = Rates(60.0, (1.0, 3.0), (1.0, 1.0))
    assert rates.at(np.array([0.0, 30.0, 60.0, 75.0, 90.0, 120.0])).tolist() == [
        1.0, 1.0, 2.0, 2.5, 3.0, 3.0,
    ]  # fmt: skip


@pytest.mark.parametrize("cv", [1.0, 5.0])
def test_arrivals_come_at_the_rate_and_as_bursty(cv: float) -> None:
    rates = Rates(600.0, (20.0,) * 200, (cv,) * 200)
    times = rates.arrivals_s(np.random.default_rng(3))
    assert (np.diff(times) >= 0).all() and times[-1] <= rates.seconds
    assert len(times) / rates.seconds == pytest.approx(20, rel=0.02 * cv)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)
