"""What waits in the engines, and how many replicas are busy with it when the next one runs."""

import re
from dataclasses import replace

from serve_app.scaling.decide import Scaler
from serve_app.scaling.reading import FleetReading, ReplicaLoad
from serve_app.scaling.reasons import Decision
from tests.unit.serve_app.scaling.loads import one, reading, scaler


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


def test_of_a_queue_that_shrank_what_did_not_shrink_stays() -> None:
    # A capacity that seems ample; 120 of 240 had gone at one time in a start.
    scale = scaler(start_s=30.0)
    full, half = (reading(*waits(each, each, arrivals=0.1), target=2) for each in (120.0, 60.0))
    looks(scale, full, 0.0, 10.0)
    looks(scale, half, 20.0)
    assert behind(scale, full, 30.0) == 0.8  # 2 x 120 x 60 / 120 / 160


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
