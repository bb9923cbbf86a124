"""How many replicas a load is worth."""

import pytest

from serve_app.scaling.demand import (
    load_of,
)
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
