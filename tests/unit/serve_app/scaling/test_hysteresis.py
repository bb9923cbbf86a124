"""How far a load has to move before the number of replicas follows."""

import math
from dataclasses import replace

import pytest

from serve_app.scaling.decide import Scaler
from serve_app.scaling.hysteresis import hardly_more, with_spare
from serve_app.scaling.reading import ReplicaLoad
from serve_app.scaling.reasons import Decision
from tests.unit.serve_app.scaling.loads import OUT, one, reading, scaler

QUIET = one(1.0, capacity_per_s=1000.0)
DEEP = replace(QUIET, waiting=300.0)


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


@pytest.mark.parametrize(
    ("replicas", "fits"), [(0.5, 0.7), (2.0, 2.2), (6.0, 6.6), (12.0, 13.2), (40.0, 41.2)]
)
def test_what_is_spared_grows_with_the_fleet_up_to_a_bit_more_than_a_replica(replicas, fits):
    assert with_spare(replicas) == pytest.approx(fits)


def test_what_is_provided_for_a_hair_above_what_runs_asks_for_none():
    decision = scaler().decide(reading(one(7.3)))  # 8.4 are provided for where 8 are carried
    assert decision.desired == 1
    assert "too little above 1 for one replica more" in decision.words


def test_not_where_many_are_late():
    scale = scaler()
    for k in range(2):
        served = one(7.3, first_tokens=100.0 * k, late_first_tokens=50.0 * k)
        decision = scale.decide(reading(replace(served, name="a"), now_s=10.0 * k))
    assert decision.desired == 2


def most_of(late_frac: float) -> int:
    """The most replicas, from the second hour on, at 4 to 8 requests/s.

    Where more than 7 come for each replica this share of them is late.
    """
    scale, number, served, late, numbers = scaler(start_s=60.0), 1, 0.0, 0.0, []
    for k in range(1080):
        per_s = 6.0 + 1.95 * math.sin(2 * math.pi * k / 180)
        served += 10 * per_s
        late += 10 * per_s * late_frac * (per_s > 7.0 * number)
        first = one(per_s / number, name="0", first_tokens=served, late_first_tokens=late)
        others = [one(per_s / number)] * (number - 1)
        number = scale.decide(reading(first, *others, now_s=10.0 * k)).desired
        numbers.append(number)
    return max(numbers[360:])


def test_not_for_long_where_more_are_late_than_should_be():
    assert (most_of(0.002), most_of(0.03), most_of(0.09)) == (1, 2, 2)


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


def test_beside_what_a_replica_carries_and_not_what_it_should():
    scale = Scaler(0.7, 20.0, 2.0, 30.0, 300.0, 3.0, 60.0)
    for k in range(400):
        decision = scale.decide(reading(*[one(5.7)] * 10, now_s=10.0 * k))
    assert decision.desired == 10


@pytest.mark.parametrize(("each_per_s", "replicas"), [(7.98, 10), (8.1, 11)])
def test_not_where_more_comes_than_is_carried(each_per_s, replicas):
    scale = scaler(start_s=60.0)
    for k in range(400):  # until forecasts of an hour have come true
        decision = scale.decide(reading(*[one(each_per_s)] * 10, now_s=10.0 * k))
    assert decision.desired == replicas


def after_a_deep_queue(deep_fleet: list[ReplicaLoad], then: int) -> Decision:
    """Three quiet replicas, a minute of a deep queue in these, a minute of so many quiet ones."""
    scale = scaler(start_s=20.0)
    fleets = [[QUIET] * 3] * 31 + [deep_fleet] * 6 + [[QUIET] * then] * 7
    for k, fleet in enumerate(fleets):
        minimum = 3 if k < 31 else 1
        decision = scale.decide(reading(*fleet, now_s=10.0 * k, minimum=minimum))
    return decision


def test_what_a_deep_queue_asked_for_stays_with_nothing_to_spare():
    decision = after_a_deep_queue([DEEP] * 3, then=7)
    assert decision.desired == 4
    assert "the last 300 s had use for 4.0 replicas" in decision.words


def test_a_deep_queue_asks_for_nothing_in_the_place_of_those_out_of_reach():
    unreached = replace(OUT, arrivals_per_s=0.1, demand_per_s=0.1)
    assert after_a_deep_queue([DEEP, DEEP, unreached], then=5).desired == 3


def test_those_out_of_reach_stand_beside_those_that_are_kept():
    scale = scaler(start_s=20.0)
    unreached = replace(OUT, arrivals_per_s=0.1, demand_per_s=0.1)
    for k in range(33):
        decision = scale.decide(reading(*[QUIET] * 4, unreached, now_s=10.0 * k))
    assert decision.desired == 2


@pytest.mark.parametrize("bounds", [{"maximum": 2}, {"minimum": 5}])
def test_words_do_not_say_that_a_number_was_kept_which_a_bound_changes(bounds):
    number = 3
    decision = scaler().decide(reading(*[one(7.3)] * number, **bounds))  # type: ignore[arg-type]
    assert "too little" not in decision.words


def test_the_band_never_grows_above_its_own():
    assert not hardly_more(10.9, 10, part=5.0)
