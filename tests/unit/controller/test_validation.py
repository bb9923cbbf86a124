"""pydantic's findings as one line each, for any model."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from controller.config import Block
from controller.errors import ConfigError
from controller.validation import keys_at, nearest, parse, shown


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


def test_a_value_that_python_does_not_write_is_its_type() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "this list"
    assert shown(10**5000) == "this int"


def test_of_very_many_names_not_all_are_listed() -> None:
    names = [f"name_{k}" for k in range(41)]
    assert nearest("zzz", names) == "none of the 41 allowed ones is near it"


def test_keys_are_found_two_models_deep() -> None:
    class Top(BaseModel):
        outer: Outer

    assert keys_at(Outer, ("host", "deeper", "x")) == []
    assert keys_at(Top, ("outer", "inner", "prt")) == ["port"]
    assert keys_at(Top, ("outer", "many", 0, "prt")) == ["port"]


def test_keys_of_a_dataclass_in_a_model_are_known() -> None:
    @dataclass(frozen=True)
    class Port:
        port: int

    class Top(Block):
        many: tuple[Port, ...] = ()

    with pytest.raises(ConfigError) as refused:
        parse(Top, {"many": [{"prt": 1, "port": 2}]}, "top")
    assert str(refused.value) == "top.many[0]: unknown key 'prt'; did you mean 'port'?"
