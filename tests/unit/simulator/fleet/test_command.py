import json
from pathlib import Path

import pytest

from serve_app import cli


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


def test_a_day_of_a_file_by_two_policies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "day.json"
    path.write_text(json.dumps({"traffic": {"ours": {"step_s": 120, "rate_per_s": [1, 3, 1]}}}))
    asked = ["fleet", "--day", str(path), "--workload", "fixed:2000,400", "--peak", "3"]
    asked += ["--policy", "brimful", "ray:target_ongoing_requests=9", "--startup", "30"]
    assert cli.main([*asked, "--json"]) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["policy"] for line in lines] == ["brimful", "ray"]
    told = [line for line in said.err.splitlines() if line.startswith("simulating ours ")]
    assert told == ["simulating ours brimful ...", "simulating ours ray ..."]  # it is no terminal
    assert all(0 < line["attainment"] <= 1 and line["replica_hours"] > 0.1 for line in lines)
