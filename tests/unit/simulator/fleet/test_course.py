"""A day drawn once, with one group of replicas or two."""

import pytest

from simulator.fleet import course
from simulator.fleet.course import Course
from simulator.fleet.crew import Overflow
from simulator.fleet.days import Day
from simulator.fleet.traffic import Rates
from tests.unit.simulator.fleet.fleets import GROUND

DAY = Day("short", Rates(60.0, (1.0, 2.0, 6.0), (1.0, 1.0, 1.0)))


@pytest.fixture(autouse=True)
def capacity_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "capacity_per_s", lambda workload, ground: 4.0)


def test_the_first_of_two_groups_stands_all_day() -> None:
    day = Course(DAY, GROUND, overflow=Overflow(quantile=0.5))
    assert day.overflow == Overflow(base=2)
    assert day.bounds == {"min_replicas": 2, "max_replicas": 40}
    assert day.replicas == 2  # 1 / 0.8 of load at the beginning
    alone = Course(DAY, GROUND)
    assert alone.overflow is None and alone.bounds["min_replicas"] == 1


def test_a_first_group_of_more_than_there_may_be_is_all_there_may_be() -> None:
    bounds = {"min_replicas": 1, "max_replicas": 4}
    assert Course(DAY, GROUND, bounds, Overflow(base=6)).bounds == {
        "min_replicas": 4,
        "max_replicas": 4,
    }
