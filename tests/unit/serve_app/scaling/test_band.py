"""How far a load has to move before the number of replicas follows."""

from dataclasses import replace

import pytest

from serve_app.scaling.band import hardly_more, with_spare
from tests.unit.serve_app.scaling.test_decide import desired, one, reading, scaler


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
def test_a_rise_counts_from_some_part_of_a_replica_on(
    wanted: float, replicas: int, hardly: bool
) -> None:
    assert hardly_more(wanted, replicas) is hardly


@pytest.mark.parametrize(
    ("replicas", "fits"), [(0.5, 0.7), (2.0, 2.2), (6.0, 6.6), (12.0, 13.2), (40.0, 41.2)]
)
def test_what_is_spared_grows_with_the_fleet_up_to_a_bit_more_than_a_replica(
    replicas: float, fits: float
) -> None:
    assert with_spare(replicas) == pytest.approx(fits)


def test_what_is_provided_for_a_hair_above_what_runs_asks_for_none() -> None:
    decision = scaler().decide(reading(one(7.3)))  # 8.4 are provided for where 8 are carried
    assert decision.desired == 1
    assert "too little above what runs for one replica more" in decision.words


def test_not_where_some_wait_outside_the_engines() -> None:
    assert desired(one(7.3), queued=1.0) == 2


def test_not_where_many_are_late() -> None:
    scale = scaler()
    for k in range(4):
        served = one(7.3, first_tokens=100.0 * k, late_first_tokens=50.0 * k)
        decision = scale.decide(reading(replace(served, name="a"), now_s=10.0 * k))
    assert decision.desired == 2


@pytest.mark.parametrize(("each_per_s", "replicas"), [(7.98, 10), (8.1, 11)])
def test_not_where_more_comes_than_is_carried(each_per_s: float, replicas: int) -> None:
    scale = scaler(start_s=60.0)
    for k in range(400):  # until forecasts of an hour have come true
        decision = scale.decide(reading(*[one(each_per_s)] * 10, now_s=10.0 * k))
    assert decision.desired == replicas


def test_a_number_that_a_deep_queue_asked_for_stays_whatever_is_spared() -> None:
    for number in (1, 3, 12):
        scale = scaler(start_s=20.0)
        deep = one(1.0, waiting=300.0, capacity_per_s=1000.0)
        for k in range(6):
            asked = scale.decide(reading(*[deep] * number, now_s=10.0 * k))
        assert (asked.reason, asked.desired) == ("deep_queue", number + 1)
        idle = [one(1.0, capacity_per_s=1000.0)] * (number + 1)
        assert scale.decide(reading(*idle, now_s=90.0)).desired == number + 1
