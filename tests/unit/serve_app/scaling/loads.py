"""Readings of a fleet, of which a test names only what it is about."""

from collections.abc import Iterable
from dataclasses import replace

from serve_app.scaling.decide import Scaler
from serve_app.scaling.reading import FleetReading, ReplicaLoad
from serve_app.scaling.reasons import Decision

LOAD = ReplicaLoad(
    running=10.0,
    waiting=0.0,
    arrivals_per_s=0.0,
    demand_per_s=0.0,
    refused_per_s=0.0,
    max_running=64.0,
    capacity_per_s=8.0,
    capacity_error_frac=0.0,
    out_of_reach=False,
)
UNMODELLED = replace(LOAD, capacity_per_s=None, running=64.0)
OUT = replace(LOAD, out_of_reach=True, max_running=None, capacity_per_s=None, arrivals_per_s=9.0)


def scaler(start_s: float = 10.0, peak_s: float = 300.0, queue_for_s: float = 30.0) -> Scaler:
    return Scaler(1.0, 20.0, 2.0, queue_for_s, peak_s, 3.0, start_s)


def one(arrivals: float = 0.0, **numbers: float) -> ReplicaLoad:
    return replace(LOAD, arrivals_per_s=arrivals, demand_per_s=arrivals, **numbers)


def reading(
    *replicas: ReplicaLoad, now_s: float = 0.0, target: int | None = None, **more: float
) -> FleetReading:
    current = len(replicas)
    target = current if target is None else target
    known = FleetReading(now_s, current, target, 1, 50, 0.0, None, replicas)
    return replace(known, **more)  # type: ignore[arg-type]


def desired(*replicas: ReplicaLoad, **more: float) -> int:
    return scaler().decide(reading(*replicas, **more)).desired  # type: ignore[arg-type]


def looks(
    scale: Scaler, fleets: Iterable[FleetReading], every_s: float = 10.0, from_s: float = 0.0
) -> list[Decision]:
    """The decision at each of these looks, so far apart."""
    return [
        scale.decide(replace(fleet, now_s=from_s + every_s * k)) for k, fleet in enumerate(fleets)
    ]


def numbers(decisions: list[Decision]) -> list[int]:
    return [one.desired for one in decisions]
