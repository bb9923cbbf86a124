"""How many replicas a load is worth."""

import pytest

from serve_app.scaling.demand import left_outside, load_of
from serve_app.scaling.reading import FleetReading, ReplicaLoad


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
