from benchmarks.fleet.contest import GRIDS, Grid, best, spec_of, tune
from benchmarks.fleet.course import Result
from benchmarks.fleet.policies import parse_policy
from tests.unit.benchmarks.fleet.fleets import GROUND


def made(spec: str, attainment: float, hours: float) -> Result:
    return Result("d", spec.partition(":")[0], spec, attainment, hours, 0.0, None)


def test_the_tightest_value_that_keeps_the_sla_is_found_then_each_other_setting() -> None:
    asked: list[str] = []

    def run(spec: str) -> Result:
        asked.append(spec)
        value, delay = (float(part.partition("=")[2]) for part in spec.split(":")[1].split(","))
        return made(spec, 1.0 if value <= (6 if delay else 4) else 0.5, 100 - 3 * value + delay)

    grid = Grid("x", tuple(range(1, 11)), {"y": (0, 1)})
    assert tune("p", grid, run).spec == "p:x=6,y=1"
    assert len(asked) <= 8
    assert tune("p", Grid("x", (7, 8), {"y": (0,)}), run).attainment == 0.5


def test_values_that_are_dearer_than_the_best_are_not_tried_back() -> None:
    asked: list[str] = []

    def run(spec: str) -> Result:
        asked.append(spec)
        value, delay = (float(part.partition("=")[2]) for part in spec.split(":")[1].split(","))
        return made(
            spec, 1.0 if value <= (2 if delay else 5) else 0.5, 100 - 3 * value + 20 * delay
        )

    assert tune("p", Grid("x", tuple(range(1, 11)), {"y": (0, 1)}), run).spec == "p:x=5,y=0"
    assert [spec for spec in asked if spec.endswith("y=1")] == ["p:x=5,y=1"]


def test_who_is_too_dear_with_its_usual_settings_is_not_searched_further() -> None:
    asked: list[str] = []

    def run(spec: str) -> Result:
        asked.append(spec)
        value = float(spec.split("x=")[1].split(",")[0])
        return made(spec, 1.0 if value <= 5 else 0.5, 100 - 3 * value)

    grid = Grid("x", tuple(range(1, 11)), {"y": (0, 1)})
    assert tune("p", grid, run, most_hours=84.0).replica_hours == 85.0
    assert all(spec.endswith("y=0") for spec in asked)
    tune("p", grid, run, most_hours=85.0)
    assert asked[-1].endswith("y=1")


def test_who_keeps_the_sla_nowhere_with_its_usual_settings_is_searched_further() -> None:
    def run(spec: str) -> Result:
        return made(spec, 1.0 if spec.endswith("y=1") else 0.5, 50.0)

    found = tune("p", Grid("x", (1, 2), {"y": (0, 1)}), run, most_hours=10.0)
    assert found.spec.endswith("y=1")


def test_the_cheapest_of_those_that_keep_it_is_best() -> None:
    tried = [made("a", 0.995, 30.0), made("b", 0.99, 20.0), made("c", 0.98, 10.0)]
    assert best(tried).policy == "b"
    assert best(tried[2:]).policy == "c"


def test_every_grid_is_of_settings_that_are_allowed() -> None:
    for name, grid in GRIDS.items():
        settings = {grid.key: grid.values[0], **{k: v[-1] for k, v in grid.sides.items()}}
        parse_policy(spec_of(name, settings), GROUND, {"min_replicas": 1, "max_replicas": 9})
