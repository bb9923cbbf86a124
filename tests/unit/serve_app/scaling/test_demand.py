"""How many replicas a load is worth."""

import pytest

from serve_app.scaling.demand import (
    left_outside,
    load_of,
    replicas_behind,
    replicas_for_queue,
    replicas_needed,
    whole,
)
from serve_app.scaling.reading import FleetReading, ReplicaLoad


@pytest.mark.parametrize(
    ("arrivals", "backlog", "replicas"),
    [(0, 0, 0), (6.8, 0, 1), (6.9, 0, 2), (13.7, 0, 3), (0, 272, 2), (6.0, 40, 2)],
)
def test_replicas_needed_is_the_formula(arrivals, backlog, replicas):
    # rho x capacity = 6.8/s; a backlog of 20 is 1/s of demand.
    needed = replicas_needed(arrivals, 8.0, outside=backlog, drain_s=20.0, target_utilization=0.85)
    assert whole(needed) == replicas


@pytest.mark.parametrize(("in_system", "replicas"), [(0, 0), (54, 1), (55, 2), (109, 3)])
def test_replicas_for_queue_fills_rho_of_every_cap(in_system, replicas):
    assert whole(replicas_for_queue(in_system, 64, 0.85)) == replicas  # 54.4 each


@pytest.mark.parametrize(
    ("capacities", "mean"),
    [
        ([8.0] * 9 + [32.0], 10.4),  # another kind of card
        ([8.0] * 9 + [1e6], 10.4),
        ([8.0] * 9 + [1e-5], 7.2),
        ([8.0], 8.0),
        ([], None),
    ],
)
def test_a_capacity_that_cannot_be_is_not_worth_a_fleet(capacities, mean):
    said = [ReplicaLoad(1.0, 0.0, 1.0, 1.0, 0.0, 8.0, each, 0.0, False) for each in capacities]
    reading = FleetReading(0.0, len(said), len(said), 1, 40, 0.0, None, tuple(said))
    assert load_of(reading).capacity_per_s == (None if mean is None else pytest.approx(mean))


def test_more_than_can_be_is_a_number_all_the_same():
    assert whole(float("inf")) == 10**9


def test_a_replica_that_is_behind_is_busy_with_that_and_no_other_with_it():
    # 160 is what a replica carries in 20 s.
    assert replicas_behind([80.0, 160.0, 9000.0, 0.0], 8.0, 20.0) == 2.5


@pytest.mark.parametrize(
    ("waiting", "grows", "left"),
    [
        ((0.0, 0.0), -100.0, 400.0),  # 50 free in each, all for what waits outside
        ((50.0, 80.0), -100.0, 500.0),  # all for what waits in the engines
        ((20.0, 80.0), -100.0, 470.0),
        ((0.0, 0.0), 100.0, 500.0),
        ((0.0, 0.0), -2000.0, 0.0),
    ],
)
def test_what_is_free_serves_what_waits_in_an_engine_first(waiting, grows, left):
    said = [ReplicaLoad(1.0, each, 1.0, 1.0, 0.0, 8.0, 8.0, 0.0, False) for each in waiting]
    load = load_of(FleetReading(0.0, 2, 2, 1, 40, 500.0, None, tuple(said)))
    assert load.behind == waiting
    assert left_outside(load, grows) == left
