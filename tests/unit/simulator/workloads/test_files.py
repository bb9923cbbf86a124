"""Workload files: what they may contain, and the errors of wrong ones."""

import json
from pathlib import Path

import pytest

from controller.errors import ConfigError
from simulator.workloads.catalog import load_workload
from simulator.workloads.files import read_requests
from simulator.workloads.requests import Request

ENTRY = {
    "quantiles": [0, 50, 100],
    "input_tokens": [1, 10, 100],
    "output_tokens": [2, 20, 200],
    "spearman": 0.5,
}


def jsonl(path: Path, *lines: str) -> str:
    """A JSONL file with these lines."""
    path = path / "w.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def entry(path: Path, **changes: object) -> str:
    """A JSON file with one workload, ``ENTRY`` with these changes, a line per key or value."""
    path = path / "w.json"
    path.write_text(json.dumps({"workloads": {"mine": ENTRY | changes}}, indent=0))
    return str(path)


def test_jsonl_lines_become_requests_in_order_of_arrival(tmp_path: Path) -> None:
    spec = jsonl(
        tmp_path,
        '{"arrival_s": 2, "input_tokens": 5, "output_tokens": 6}',
        "",
        '{"arrival_s": 1, "input_tokens": 7, "output_tokens": 8, "max_tokens": 9, "priority": 1}',
    )
    assert load_workload(spec).recorded == (Request(0, 7, 8, 9, 1), Request(1, 5, 6))
    assert load_workload(spec).rate_per_s == 1


GOOD = '{"arrival_s": 1, "input_tokens": 5, "output_tokens": 6}'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (GOOD.replace("5", "0"), "input_tokens: 0 is not allowed"),
        (GOOD.replace("6", "2.5"), "output_tokens: 2.5 is not allowed"),
        (GOOD.replace("5", "10000001"), "input_tokens: 10000001 is not allowed"),
        (GOOD[:-1] + f', "max_tokens": {10**25}}}', f"max_tokens: {10**25} is not allowed"),
        (GOOD.replace("1", "-1"), "arrival_s: -1 is not allowed"),
        (GOOD.replace("1", "NaN"), "NaN is not allowed: a finite number"),
        (GOOD.replace("1", '"soon"'), "arrival_s: 'soon' is not allowed"),
        (GOOD.replace("arrival_s", "arival_s"), "did you mean 'arrival_s'?"),
        ('{"arrival_s": 1, "input_tokens": 5}', "output_tokens: required key is missing"),
        (GOOD[:-1] + ', "max_tokens": 3}', "output_tokens 6 is above max_tokens 3"),
        (GOOD[:-1] + ', "prefix": ["a", "b"]}', "prefix has 2 names; 5 input_tokens have 0"),
        (GOOD[:-1], "not JSON: Expecting ',' delimiter"),
        ("[1, 2]", "[1, 2] is not allowed"),
    ],
)
def test_a_wrong_line_is_told_its_number_and_field(tmp_path: Path, line: str, says: str) -> None:
    spec = jsonl(tmp_path, GOOD, GOOD, line, GOOD)
    with pytest.raises(ConfigError) as caught:
        load_workload(spec)
    assert str(caught.value).startswith(f"{spec}:3: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"spearman": 2}, "workloads.mine.spearman: 2 is not allowed"),
        ({"input_tokens": [1, "x", 3]}, "workloads.mine.input_tokens[1]: 'x' is not allowed"),
        ({"input_tokens": [1, 2]}, "input_tokens has 2 values, quantiles 3"),
        ({"input_tokens": [3, 2, 1]}, "input_tokens must not descend"),
        ({"quantiles": [0, 50, 99]}, "quantiles must go from 0 to 100"),
        ({"gap_cv": -1}, "workloads.mine.gap_cv: -1 is not allowed"),
        ({"gap_cv": 101}, "workloads.mine.gap_cv: 101 is not allowed"),
        ({"mean_rate_per_s": 1e-4}, "workloads.mine.mean_rate_per_s: 0.0001 is not allowed"),
        ({"input_tokens": [1, 2, 1e8]}, "workloads.mine.input_tokens[2]: 100000000.0 is not"),
        ({"gapcv": 1}, "did you mean 'gap_cv'?"),
    ],
)
def test_a_wrong_workload_is_told_its_field(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    spec = entry(tmp_path, **changes)
    with pytest.raises(ConfigError) as caught:
        load_workload(spec)
    assert str(caught.value).startswith(f"{spec}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("fixed:1", "fixed:IN,OUT, whole tokens from 1"),
        ("fixed:10000001,1", "fixed:IN,OUT, whole tokens from 1 to 10,000,000"),
        ("exponential:0,5", "exponential:IN,OUT, mean tokens from 1"),
        ("exponential:1e300,5", "exponential:IN,OUT, mean tokens from 1 to 10,000,000"),
        ("exponential:nan,5", "exponential:IN,OUT"),
        ("lognormal:1,1,1e300", "CV of the outputs above 0 to 100"),
        ("lognormal:1,1,nan", "CV of the outputs above 0 to 100"),
        ("azure-2023-conversations", "did you mean 'azure-2023-conversation'?"),
        ("nowhere/w.jsonl", "nowhere/w.jsonl: cannot be read: No such file"),
    ],
)
def test_a_wrong_name_is_told_what_is_allowed(spec: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_workload(spec)
    assert says in str(caught.value)


def test_what_capture_writes_is_read(tmp_path: Path) -> None:
    spec = jsonl(
        tmp_path,
        '{"arrival_s":5,"input_tokens":1100,"output_tokens":0,"max_tokens":9,"cancelled":true,'
        '"service":"chat","prefix":["a","b"]}',
    )
    (request,) = read_requests(Path(spec))
    assert request == Request(0.0, 1100, 1, 9, prefix=("a", "b"))
