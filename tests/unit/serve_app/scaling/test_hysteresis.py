"""How far a load has to move before the number of replicas follows."""

from dataclasses import replace

import pytest

from serve_app.scaling.demand import hardly_more
from tests.unit.serve_app.scaling.loads import OUT, one, reading, scaler


@pytest.mark.parametrize(
    ("wanted", "replicas", "hardly"),
    [
        (1.0, 1, False),
        (1.069, 1, True),
        (1.071, 1, False),
        (5.34, 5, True),
        (5.36, 5, False),
        (40.69, 40, True),  # 7% of 40 is more than the most
        (40.71, 40, False),
        (3.0, 5, False),
    ],
)
def test_a_rise_counts_from_some_part_of_a_replica_on(wanted, replicas, hardly):
    assert hardly_more(wanted, replicas) is hardly


def test_not_where_many_are_late():
    scale = scaler()
    for k in range(2):
        served = one(7.3, first_tokens=100.0 * k, late_first_tokens=50.0 * k)
        decision = scale.decide(reading(replace(served, name="a"), now_s=10.0 * k))
    assert decision.desired == 2


@pytest.mark.parametrize(
    ("fleet", "number"),
    [
        (reading(one(7.3), queued=1.0), 2),  # not where some wait outside the engines
        # What is wanted is beside what is in reach.
        (reading(replace(OUT, arrivals_per_s=1.0, demand_per_s=1.0), one(6.9), one(6.9)), 3),
        # What starts is counted, what is drained is not, and one that says nothing carries nothing.
        (reading(one(15.0), target=2), 2),
        (reading(one(3.65), one(3.65), target=1), 1),
        (reading(one(14.6), current=2, target=2), 3),
    ],
)
def test_how_much_more_counts_beside_what_runs(fleet, number):
    assert scaler().decide(fleet).desired == number


@pytest.mark.parametrize(("each_per_s", "replicas"), [(7.98, 10), (8.1, 11)])
def test_not_where_more_comes_than_is_carried(each_per_s, replicas):
    scale = scaler(start_s=60.0)
    for k in range(400):  # until forecasts of an hour have come true
        decision = scale.decide(reading(*[one(each_per_s)] * 10, now_s=10.0 * k))
    assert decision.desired == replicas
