"""Ray Serve's context of a fleet, without impossible values.

Nothing here raises on input: a replica whose numbers are missing, old or impossible does not
report, and ``decide`` handles that.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AGE_OF = "running"  # published with every report, so its age is the report's
UNLIMITED = 10**9
LARGEST = 1e12  # larger values are impossible, and their sums might be infinite
SMALLEST = 1e-6  # a smaller capacity or cap counts as none


@dataclass(frozen=True)
class ReplicaLoad:
    """One replica's numbers: Ray Serve's averages over its look-back period, or the newest.

    Args:
        running, waiting: requests in the engine.
        arrivals_per_s: requests/s, including refused ones.
        demand_per_s: ``arrivals_per_s`` in requests of the size that ``capacity_per_s`` counts.
        refused_per_s: part of ``arrivals_per_s`` that does not wait here.
        max_running: an enforced cap; None: unknown.
        capacity_per_s: requests/s inside the SLA; None if unknown.
        capacity_error_frac: standard error of ``capacity_per_s``, as a share.
        out_of_reach: no batch keeps the SLA.
        name: of the replica, stable over readings.
        first_tokens, late_first_tokens: since its engine started; the latter were too late for the
            SLA. None: unknown.
        unscaled: requests in the engine that do not count for autoscaling; no other number includes
            them.
    """

    running: float
    waiting: float
    arrivals_per_s: float
    demand_per_s: float
    refused_per_s: float
    max_running: float | None
    capacity_per_s: float | None
    capacity_error_frac: float
    out_of_reach: bool
    name: Any = None
    first_tokens: float | None = None
    late_first_tokens: float | None = None
    unscaled: float = 0.0


@dataclass(frozen=True)
class FleetReading:
    """One reading of a deployment.

    Args:
        now_s: Unix time of Serve's controller.
        current, target: replicas that run, and that Ray Serve aims at.
        minimum, maximum: the bounds on ``target``.
        queued: requests that wait outside the engines, in Ray Serve.
        ongoing: requests that Ray Serve knows of, in replicas and queued; None: unknown.
        names: of the running replicas; None: unknown.
        replicas: those with possible and recent numbers.
    """

    now_s: float
    current: int
    target: int
    minimum: int
    maximum: int
    queued: float
    ongoing: float | None
    replicas: tuple[ReplicaLoad, ...]
    names: frozenset[Any] | None = None

    @property
    def unreporting(self) -> int:
        """Running replicas without numbers: too new, hung, or with impossible ones."""
        return max(self.current - len(self.replicas), 0)


def read_fleet(ctx: Any, ages: "Ages") -> FleetReading:
    """Reads a Ray Serve ``AutoscalingContext``, as far as it makes sense."""
    now_s = time_of(ctx)
    current = _count(_get(ctx, "current_num_replicas"), 0)
    target = _count(_get(ctx, "target_num_replicas"), current)
    minimum = _count(_get(ctx, "capacity_adjusted_min_replicas"), 1)
    old = ages.old(_get(ctx, "raw_metrics"), now_s, _patience_s(_get(ctx, "config")))
    return FleetReading(
        now_s=now_s,
        current=current,
        target=target,
        minimum=minimum,
        maximum=max(_count(_get(ctx, "capacity_adjusted_max_replicas"), UNLIMITED), minimum),
        queued=number(_get(ctx, "total_queued_requests")) or 0.0,
        ongoing=number(_get(ctx, "total_num_requests")),
        replicas=_replicas(_get(ctx, "aggregated_metrics"), _get(ctx, "raw_metrics"), old),
        names=_names(_get(ctx, "running_replicas"), current),
    )


def time_of(ctx: Any) -> float:
    """Unix time of this reading; this process' own if the context has none."""
    known = number(_get(ctx, "current_time"))
    return time.time() if known is None else known


def number(value: Any) -> float | None:
    """A number from 0 to ``LARGEST``, or None."""
    if isinstance(value, bool):
        return float(value)
    try:
        known = float(value)
    except Exception:  # of any type that is no number
        return None
    return known if 0 <= known <= LARGEST else None


class Ages:
    """Finds statistics that no longer change, by the reader's clock: others may be off."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[Any, float]] = {}

    def old(self, raw: Any, now_s: float, patience_s: float) -> set[Any]:
        """Replicas whose newest sample has not changed for longer than ``patience_s``.

        Args:
            raw: ``raw_metrics`` of the context; without any, nothing is known to be old.
        """
        series = _mapping(_mapping(raw).get(AGE_OF))
        newest = {replica: _last(samples, "timestamp") for replica, samples in series.items()}
        known = {}
        for replica, at in newest.items():
            before, since_s = self._seen.get(replica, (None, now_s))
            same = at == before or at != at  # nan equals nothing, itself included
            known[replica] = (at, since_s if same and since_s <= now_s else now_s)
        self._seen = known
        return {r for r, (_, since_s) in known.items() if now_s - since_s > patience_s}


def _patience_s(config: Any) -> float:
    """How long statistics may stay unchanged: two pushes, and the longest sampling interval."""
    push_s = number(_get(config, "metrics_interval_s")) or 10.0
    look_back_s = number(_get(config, "look_back_period_s")) or 30.0
    return 2 * max(push_s, 10.0) + 0.2 * look_back_s


def _replicas(metrics: Any, raw: Any, old: set[Any]) -> tuple[ReplicaLoad, ...]:
    named = {str(name): _mapping(of) for name, of in _mapping(metrics).items()}
    series = {name: _mapping(_mapping(raw).get(name)) for name in NEWEST}
    loads = []
    for replica in named.get("running", {}):
        values = {name: number(of[replica]) for name, of in named.items() if replica in of}
        for name, samples in series.items():
            last = _last(samples.get(replica), "value") if name in values else None
            if last is not None:
                values[name] = number(last)
        load = _load(replica, values)
        if load is not None and replica not in old:
            loads.append(load)
    return tuple(loads)


def _load(name: Any, values: Mapping[str, float | None]) -> ReplicaLoad | None:
    """None if a number is impossible, or a number that all replicas publish is missing."""
    ours = {name: values[name] for name in PUBLISHED if name in values}
    known = {name: value for name, value in ours.items() if value is not None}
    if len(known) < len(ours) or not {"running", "waiting"} <= known.keys():
        return None
    capacity, cap = known.get("capacity_per_s"), known.get("max_running", 0.0)
    arrivals = known.get("arrival_rate_per_s", 0.0)
    # Replicas of an earlier version publish a capacity of 0 if the SLA is out of reach.
    out = known.get("sla_out_of_reach", 0.0) >= 0.5 or (
        capacity is not None and capacity < SMALLEST
    )
    return ReplicaLoad(
        running=known["running"],
        waiting=known["waiting"],
        arrivals_per_s=arrivals,
        demand_per_s=known.get("demand_per_s", arrivals),
        refused_per_s=min(known.get("refused_per_s", 0.0), arrivals),
        max_running=cap if cap >= SMALLEST and not out else None,
        capacity_per_s=capacity if not out else None,
        capacity_error_frac=min(known.get("capacity_error_frac", 0.0), 1.0),
        out_of_reach=out,
        name=name,
        first_tokens=known.get("first_tokens"),
        late_first_tokens=known.get("late_first_tokens"),
        unscaled=known.get("unscaled", 0.0),
    )


PUBLISHED = (
    "running",
    "waiting",
    "arrival_rate_per_s",
    "demand_per_s",
    "refused_per_s",
    "max_running",
    "capacity_per_s",
    "capacity_error_frac",
    "sla_out_of_reach",
    "first_tokens",
    "late_first_tokens",
    "unscaled",
)
# Counts, and means over time: averaging them again would only make them old.
NEWEST = (
    "arrival_rate_per_s",
    "demand_per_s",
    "refused_per_s",
    "first_tokens",
    "late_first_tokens",
)


def _get(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # Ray Serve computes some on access
        return None


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any, current: int) -> frozenset[Any] | None:
    try:
        names = frozenset(value)
    except Exception:  # of any type that is no collection of names
        return None
    return names if len(names) == current else None


def _count(value: Any, otherwise: int) -> int:
    known = number(value)
    return otherwise if known is None else int(min(known, UNLIMITED))


def _last(samples: Any, what: str) -> Any:
    try:
        return getattr(samples[-1], what)
    except Exception:  # none, or no series
        return None
