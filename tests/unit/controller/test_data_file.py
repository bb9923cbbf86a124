"""JSON files that people write: where a fault is, by file, line and field."""

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from controller.data_file import load_json, parse_json_line, read_json, read_text, split_spec
from controller.errors import ConfigError


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int
    y: int = 0


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = ""
    points: list[Point] = []
    named: dict[str, Point] = {}


def problems(path: Path) -> list[str]:
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
            ["FILE:6: points[1].x: 'b' is not allowed: Input should be a valid"],
        ),
        ('{"points": [\n {"x": 1},\n {"y": 2}]}', ["FILE:3: points[1].x: required key is miss"]),
        (
            '{"name": "a",\n "named": {"p": {"x": 1,\n "z": 2}}}',
            ["FILE:3: named.p: unknown key 'z'; allowed: x, y"],
        ),
        ('{"points": [{"x": "a"},\n{"x": "b"}]}', ["FILE:1:", "FILE:2:"]),
        ("[1]", ["FILE:1: "]),
    ],
)
def test_a_fault_is_named_with_the_line_of_its_value(path, text, said):
    path.write_text(text)
    for problem, begin in zip(problems(path), said, strict=True):
        assert problem.startswith(begin)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,\n "b": ?}', "f.jsonl:11: not JSON: Expecting value, column 7"),
        ("1" * 5000, "f.jsonl:10: a number has more than 4,300 digits"),
        *((f'{{"a": {it}}}', f"f.jsonl:10: {it} is not allowed: a finite number")
          for it in ("NaN", "Infinity", "-Infinity")),
    ],
    ids=lambda it: it[:20],
)  # fmt: skip
def test_what_is_not_json_is_named_where_it_stops_being_it(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_json(text, "f.jsonl", 10)
    assert refused.value.problems == [said]


@pytest.mark.parametrize("name", ['"\x7f"', f'"a",\n"points": {"[" * 700}{"]" * 700}'])
def test_a_fault_in_what_only_json_can_read_is_on_the_first_line(path: Path, name: str) -> None:
    path.write_text(f'{{\n"other": 1, "name": {name}}}')
    assert all(problem.startswith("FILE:1: ") for problem in problems(path))


def test_a_line_of_many_is_named_with_its_number() -> None:
    assert parse_json_line('{"x": 1}', Point, "f.jsonl", 7) == Point(x=1)
    with pytest.raises(ConfigError) as refused:
        parse_json_line('{"x": 1, "z": 2}', Point, "f.jsonl", 7)
    assert refused.value.problems == ["f.jsonl:7: top level: unknown key 'z'; allowed: x, y"]


def test_a_spec_is_a_file_and_perhaps_a_name_in_it(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}")
    odd = tmp_path / "b:c.json"
    odd.write_text("{}")
    assert split_spec(str(file)) == (file, None)
    assert split_spec(f"{file}:card") == (file, "card")
    assert split_spec(str(odd)) == (odd, None)
    assert split_spec(f"{odd}:card") == (odd, "card")
    for missing in ("x.json", "x.jsonl", "no/such"):  # what looks like a file
        assert split_spec(missing) == (Path(missing), None)
    for name in ("paper-fig3", "card:one", ""):
        assert split_spec(name) == (None, None)
