"""What people wrote wrong: its place, its value, what is allowed; over pickle as well."""

import datetime
import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from controller.data_file import load_json, read_json, read_text
from controller.errors import ConfigError
from controller.validation import parse, shown
from controller.yaml_text import Loader


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    port: int = 1


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    host: str
    inner: Inner | None = None
    many: list[Inner] = []
    named: dict[str, Inner] = {}


def problems(data: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse(Outer, data, "top")
    return refused.value.problems


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"host": ...}, "top.host: required key is missing"),
        ({"inner": {"prt": 1}}, "top.inner: unknown key 'prt'; did you mean 'port'?"),
        ({"many": [{}, {"prt": 1}]}, "top.many[1]: unknown key 'prt'; did you mean 'port'?"),
        ({"named": {"x": {"prt": 1}}}, "top.named.x: unknown key 'prt'; did you mean 'port'?"),
        ({"hots": 1}, "top: unknown key 'hots'; did you mean 'host'?"),
        ({"zzz": 1}, "top: unknown key 'zzz'; allowed: host, inner, many, named"),
        ({"many": [{"port": "x"}]}, "top.many[0].port: 'x' is not allowed: Input should be a val"),
    ],
)
def test_a_mistake_is_named_at_its_place_with_its_neighbours(data, problem):
    data = {key: value for key, value in ({"host": "a"} | data).items() if value is not ...}
    (found,) = problems(data)
    assert found.startswith(problem)


def test_a_value_that_is_long_is_cut() -> None:
    (problem,) = problems({"host": [1] * 1000})
    assert problem == f"top.host: [{'1, ' * 39}1,... is not allowed: " + (
        "Input should be a valid string"
    )
    (problem,) = problems({"host": "a", "z" * 1000: 1})
    assert problem.startswith(f"top: unknown key '{'z' * 119}...; allowed: ")
    assert shown("a" * 118) == f"'{'a' * 118}'"


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int
    y: int = 0


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = ""
    points: list[Point] = []
    named: dict[str, Point] = {}


def file_problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        read_json(path, Plan)
    return [line.replace(str(path), "FILE") for line in refused.value.problems]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def test_a_sound_file_is_its_model(path: Path) -> None:
    for mark in ("", "\ufeff"):  # some editors begin UTF-8 with one
        path.write_text(mark + '{"points": [{"x": 1}]}')
        assert read_json(path, Plan) == Plan(points=[Point(x=1)])


def test_a_file_that_is_not_there_or_not_text_is_named(path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_text(path)
    assert refused.value.problems == [f"{path}: cannot be read: No such file or directory"]
    path.write_bytes(b"{}\xff")
    with pytest.raises(ConfigError) as refused:
        read_text(path)
    assert refused.value.problems == [f"{path}: byte 2 is not UTF-8 text"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{\n\t"name": "a",\n\t"points": [\n\t\t{"x": 1},\n\t\t{"x":\n\t\t"b"}]}',
            ["FILE: points[1].x: 'b' is not allowed: Input should be a valid"],
        ),
        ('{"points": [\n {"x": 1},\n {"y": 2}]}', ["FILE: points[1].x: required key is miss"]),
        (
            '{"name": "a",\n "named": {"p": {"x": 1,\n "z": 2}}}',
            ["FILE: named.p: unknown key 'z'; allowed: x, y"],
        ),
        ('{"points": [{"x": "a"},\n{"x": "b"}]}', ["FILE: points[0].x", "FILE: points[1].x"]),
        ("[1]", ["FILE: "]),
    ],
)
def test_a_fault_is_named_with_its_field(path, text, said):
    path.write_text(text)
    for problem, begin in zip(file_problems(path), said, strict=True):
        assert problem.startswith(begin)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "b": ?}', "f.jsonl:11: not JSON: Expecting value, column 7"),
        ("1" * 5000, "f.jsonl:10: a number has more than 4,300 digits"),
        ('{"a": 1,\n "a": 2}', "f.jsonl:10: key 'a' is given twice"),
        *((f'{{"a": {it}}}', f"f.jsonl:10: {it} is not allowed: a finite number")
          for it in ("NaN", "Infinity", "-Infinity")),
    ],
    ids=lambda it: it[:20],
)  # fmt: skip
def test_what_is_not_json_is_named_where_it_stops_being_it(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_json(text, "f.jsonl", 10)
    assert refused.value.problems == [said]


TIMESTAMP = "tag:yaml.org,2002:timestamp"


def test_a_date_is_a_date_whatever_another_library_makes_of_it(monkeypatch):
    # As lm-format-enforcer does, which vLLM imports for structured outputs.
    text = yaml.SafeLoader.yaml_constructors["tag:yaml.org,2002:str"]
    monkeypatch.setitem(yaml.SafeLoader.yaml_constructors, TIMESTAMP, text)
    assert yaml.safe_load("2001-12-13") == "2001-12-13"
    assert yaml.load("2001-12-13", Loader) == datetime.date(2001, 12, 13)
    with pytest.raises(yaml.YAMLError, match="is not allowed as timestamp"):
        yaml.load("2001-13-45", Loader)


def test_a_config_error_keeps_its_problems_over_pickle() -> None:
    back = pickle.loads(pickle.dumps(ConfigError(["a: wrong", "b: wrong"])))
    assert back.problems == ["a: wrong", "b: wrong"]
    assert str(back) == "a: wrong\nb: wrong"
