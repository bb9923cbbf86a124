from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet.contest import GRIDS, Grid, spec_of, tune
from simulator.fleet.course import Result
from simulator.fleet.policies import parse_policy
from tests.unit.simulator.fleet.fleets import GROUND

VALUES = tuple(range(1, 11))


def made(spec: str, attainment: float, hours: float) -> Result:
    return Result("d", spec.partition(":")[0], spec, attainment, hours, 0.0, None)


def settings_of(spec: str) -> dict[str, float]:
    pairs = (pair.split("=") for pair in spec.partition(":")[2].split(","))
    return {key: float(value) for key, value in pairs}


class Day:
    """A day on which the SLA is kept up to a value of x, by the other settings.

    Attributes:
        asked: specs that were run, each once.
    """

    def __init__(self, most: Callable[..., float], hours: Callable[..., float]) -> None:
        self._most, self._hours = most, hours
        self.asked: list[str] = []

    def __call__(self, spec: str) -> Result:
        if spec not in self.asked:
            self.asked.append(spec)
        settings = settings_of(spec)
        x = settings.pop("x")
        inside = 1.0 if x <= self._most(**settings) else 0.5
        return made(spec, inside, self._hours(x, **settings))


def falls(x: float, **others: float) -> float:
    return 100 - 3 * x + sum(others.values())


def test_the_tightest_value_that_keeps_the_sla_is_found_with_the_best_of_each_setting() -> None:
    day = Day(lambda y: 6 if y else 4, falls)
    found = settings_of(tune("p", Grid("x", VALUES, {"y": (0, 1)}), day).spec)
    assert found["y"] == 1 and 6 <= found["x"] < 6.2
    assert len(day.asked) <= 14
    assert tune("p", Grid("x", (7, 8), {"y": (0,)}), day).attainment == 0.5


def test_between_two_values_of_the_grid_a_tighter_one_is_found() -> None:
    found = tune("p", Grid("x", (1, 2, 4, 8), {"y": (0,)}), Day(lambda y: 7, falls))
    assert 6.5 < settings_of(found.spec)["x"] <= 7
    # The last value of the grid is the tightest there is.
    assert tune("p", Grid("x", (1, 2, 4), {"y": (0,)}), Day(lambda y: 9, falls)).spec == "p:x=4,y=0"


def test_values_that_are_dearer_than_the_best_are_not_tried_back() -> None:
    day = Day(lambda y: 2 if y else 5, lambda x, y: 100 - 3 * x + 20 * y)
    found = tune("p", Grid("x", VALUES, {"y": (0, 1)}), day)
    assert settings_of(found.spec)["y"] == 0
    assert [spec for spec in day.asked if spec.endswith("y=1")] == ["p:x=5,y=1"]


def test_where_nothing_keeps_the_sla_all_more_generous_values_are_tried() -> None:
    day = Day(lambda y: 2 if y else 0, falls)
    assert settings_of(tune("p", Grid("x", VALUES, {"y": (0, 1)}), day).spec)["y"] == 1


def test_who_keeps_the_sla_nowhere_with_its_usual_settings_is_searched_further() -> None:
    day = Day(lambda y: 9 if y else 0, falls)
    found = tune("p", Grid("x", (1, 2), {"y": (0, 1)}), day)
    assert found.spec.endswith("y=1")


@given(
    st.lists(st.integers(1, 10), min_size=6, max_size=6),
    st.lists(st.integers(0, 40), min_size=6, max_size=6),
)
def test_no_single_change_of_what_was_found_is_better(most: list[int], extra: list[int]) -> None:
    def place(y: float, z: float) -> int:
        return int(3 * y + z)

    def hours(x: float, y: float, z: float) -> float:
        return 100 - 3 * x + extra[place(y, z)]

    day = Day(lambda y, z: most[place(y, z)], hours)
    grid = Grid("x", VALUES, {"y": (0, 1), "z": (0, 1, 2)})
    found = tune("p", grid, day)
    at = settings_of(found.spec)
    for key, options in grid.sides.items():
        for option in options:
            other = {**at, key: option}
            x = most[place(other["y"], other["z"])]
            cheapest = hours(x, other["y"], other["z"])
            assert found.replica_hours <= cheapest + 1e-9


@pytest.mark.parametrize("name", GRIDS)
def test_every_grid_is_of_settings_that_are_allowed(name: str) -> None:
    grid = GRIDS[name]
    assert list(grid.values) == sorted(grid.values)
    settings = {grid.key: grid.values[0], **{k: v[-1] for k, v in grid.sides.items()}}
    parse_policy(spec_of(name, settings), GROUND, {"min_replicas": 1, "max_replicas": 9})


def test_a_search_that_begins_where_another_ended_needs_fewer_runs_and_is_no_worse() -> None:
    grid = Grid("x", VALUES, {"y": (0, 1, 2), "z": (0, 1, 2)})

    def day() -> Day:
        return Day(lambda y, z: 2 + 2 * y + z, lambda x, y, z: 100 - 3 * x - z)

    from_usual, from_there = day(), day()
    found = tune("p", grid, from_usual)
    again = tune("p", grid, from_there, start=found.spec)
    assert again.spec == found.spec
    assert len(from_there.asked) < len(from_usual.asked)
    # A start that is too tight, or unlike every option, is only a start.
    for start in ("p:x=10,y=0,z=7", "p:x=0.5"):
        assert tune("p", grid, day(), start=start).replica_hours <= found.replica_hours


def test_where_the_start_keeps_the_sla_and_a_more_generous_value_does_not_it_stays_there() -> None:
    """One value alone keeps it, as chance may have it; no side is then tried from the first on."""

    class Chance(Day):
        def __call__(self, spec: str) -> Result:
            self.asked.append(spec)
            inside = 0.995 if "x=4.5" in spec else 0.5
            return made(spec, inside, 50.0)

    day = Chance(lambda y: 0, falls)
    assert tune("p", Grid("x", VALUES, {"y": (0, 1)}), day, start="p:x=4.5,y=0").keeps
    assert not any("x=1," in spec and "y=1" in spec for spec in day.asked)
