"""What waits in the engines, and how many replicas are busy with it when the next one runs."""

import re
from dataclasses import replace

from serve_app.scaling.decide import Scaler
from serve_app.scaling.reading import FleetReading, ReplicaLoad
from serve_app.scaling.reasons import Decision
from tests.unit.serve_app.scaling.loads import LOAD, one, reading, scaler

OUT = replace(LOAD, out_of_reach=True, max_running=None, capacity_per_s=None, waiting=500.0)


def looks(scale: Scaler, fleet: FleetReading, *at_s: float) -> Decision:
    for now_s in at_s:
        decision = scale.decide(replace(fleet, now_s=now_s))
    return decision


def behind(scale: Scaler, fleet: FleetReading, *at_s: float) -> float:
    """Replicas still busy, as the last of these looks says in words."""
    found = re.search(r"runs, ([0-9.]+) replicas are still busy", looks(scale, fleet, *at_s).words)
    assert found
    return float(found[1])


def waits(*waiting: float, arrivals: float = 8.0) -> tuple[ReplicaLoad, ...]:
    return tuple(one(arrivals, waiting=each) for each in waiting)


def test_what_comes_above_capacity_piles_up_in_all_engines_alike_once_it_lasted() -> None:
    # 1/s above what four carry: in 40 s 10 more in each, of the 160 that one carries in 20 s.
    fleet = reading(*waits(8.0, 8.0, 8.0, 8.0, arrivals=8.25))
    assert behind(scaler(start_s=40.0), fleet, 0.0, 20.0, 29.0) == 0.2  # 4 x 8 / 160
    assert behind(scaler(start_s=40.0), fleet, 0.0, 20.0, 30.0) == 0.5  # 4 x (8 + 10) / 160


def test_an_excess_that_was_interrupted_or_began_now_does_not_pile_up() -> None:
    enough, more = (reading(*waits(8.0, 8.0, arrivals=each), target=2) for each in (8.0, 12.0))
    for at_s in ((0.0, 10.0, 20.0), (10.0,), (20.0,)):
        scale = scaler(start_s=40.0)
        for now_s in (0.0, 10.0, 20.0):
            looks(scale, enough if now_s in at_s else more, now_s)
        assert behind(scale, more, 30.0) == 0.1  # 2 x 8 / 160


def test_it_piles_up_until_the_next_replica_runs_that_is_on_its_way() -> None:
    fleet = reading(*waits(8.0, 8.0, arrivals=12.0), target=3)
    assert behind(scaler(start_s=40.0), fleet, 0.0) == 0.1
    assert behind(scaler(start_s=40.0), fleet, 0.0, 30.0) == 0.6  # 10 s on: 2 x (8 + 40) / 160


def test_of_a_queue_that_shrank_what_did_not_shrink_stays() -> None:
    # A capacity that seems ample; 120 of 240 had gone at one time in a start.
    scale = scaler(start_s=30.0)
    full, half = (reading(*waits(each, each, arrivals=0.1), target=2) for each in (120.0, 60.0))
    looks(scale, full, 0.0, 10.0)
    looks(scale, half, 20.0)
    assert behind(scale, full, 30.0) == 0.8  # 2 x 120 x 60 / 120 / 160


def test_what_stays_is_looked_at_over_a_start_and_no_less_than_30_s() -> None:
    fleet = reading(*waits(120.0, 120.0, arrivals=0.1), target=2)

    def after(start_s: float, until_s: int) -> float:
        return behind(scaler(start_s), fleet, *map(float, range(0, until_s + 1, 10)))

    # 7.9/s are free in each: in 10 s 41 are left of 120, in 100 s none, if they go at all.
    assert (after(10.0, 20), after(10.0, 30)) == (0.5, 1.5)
    assert (after(100.0, 90), after(100.0, 100)) == (0.0, 1.5)


def test_uneven_looks_do_not_forget_what_was_there_a_start_ago() -> None:
    fleet = reading(*waits(120.0, 120.0, arrivals=0.1), target=2)
    at_s = 0.0, 7.0, 16.0, 25.0, 34.0, 43.0
    assert behind(scaler(start_s=30.0), fleet, *at_s) == 1.5
    assert behind(scaler(start_s=10.0), fleet, *at_s) == 1.5


def test_what_waits_outside_is_in_no_engine() -> None:
    fleet = reading(*waits(120.0, 120.0, arrivals=0.1), target=2, queued=500.0)
    at_s = 0.0, 10.0, 20.0, 30.0
    scale = scaler(start_s=30.0)
    looks(scale, reading(*waits(120.0, 120.0, arrivals=0.1), target=2), *at_s)
    assert behind(scale, fleet, 40.0) == 1.5


def test_replicas_out_of_reach_are_behind_with_nothing() -> None:
    good = waits(80.0, 80.0)
    assert behind(scaler(), reading(*good, OUT), 0.0) == behind(scaler(), reading(*good), 0.0) == 1


def test_replicas_that_say_nothing_carry_nothing_of_an_excess() -> None:
    # 24/s come to two that carry 8/s each: 8/s too many, whether two more are silent or not.
    fleet = waits(8.0, 8.0, arrivals=12.0)
    alone = behind(scaler(start_s=40.0), reading(*fleet), 0.0, 30.0)
    assert behind(scaler(start_s=40.0), reading(*fleet, current=4, target=4), 0.0, 30.0) == alone


def test_what_grows_is_counted_in_the_engines_and_not_outside_as_well() -> None:
    # 8/s above what one carries and a start of 40 s: 320 more, at one replica's worth; 100 outside.
    fleet = reading(one(16.0), queued=100.0)
    decided = looks(scaler(start_s=40.0), fleet, 0.0, 30.0)
    assert decided.desired == 4  # 16 / 8 provided for as 18.3, 100 / 40 / 8, and 1: 3.6


def test_what_grows_is_spread_over_the_replicas_that_carry_it_alone() -> None:
    # 2/s too many for two of three: in 40 s 40 more in each of the two.
    fleet = reading(*waits(8.0, 8.0, arrivals=9.0), OUT)
    assert behind(scaler(start_s=40.0), fleet, 0.0, 30.0) == 0.6  # 2 x (8 + 40) / 160
