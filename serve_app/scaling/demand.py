"""Replicas that a load needs, as a fraction."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from serve_app.scaling.reading import FleetReading, ReplicaLoad

# A capacity above this multiple of the median replica's is cut to it: one that is impossible would
# otherwise stand for a fleet. Two kinds of cards in one deployment are closer than that.
MOST_OVER_MEDIAN = 4.0
MORE_FRAC, MOST_MORE = 0.07, 0.7  # of the running replicas: smaller rises are ignored
SPARE_FRAC, LEAST_SPARE, MOST_SPARE = 0.1, 0.2, 1.2  # free part before a replica is removed


def replicas_needed(
    demand_per_s: float,
    capacity_per_s: float,
    *,
    target_utilization: float,
    outside: float = 0.0,
    drain_s: float = 1.0,
) -> float:
    """N = (arrival rate + queue outside / T_drain) / (rho x capacity of one replica).

    Args:
        capacity_per_s: requests/s one replica carries inside the SLA; above 0.
        target_utilization: rho, the share of its capacity a replica should carry.
        outside: requests that wait for any replica, to be gone within ``drain_s``.
    """
    return (demand_per_s + outside / drain_s) / (target_utilization * capacity_per_s)


def replicas_behind(waiting: Sequence[float], capacity_per_s: float, drain_s: float) -> float:
    """Replicas busy with their own queues: sum of min(waiting / (capacity x T), 1).

    Requests that wait in an engine stay there: another replica takes none of them, only new ones
    instead of the engine that is behind. So each queue is worth one replica at most.
    """
    return sum(min(each / (capacity_per_s * drain_s), 1.0) for each in waiting)


def replicas_for_queue(in_system: float, max_running: float, target_utilization: float) -> float:
    """N for which running and waiting requests fill rho of every replica's cap.

    Args:
        max_running: the cap of one replica; it must be enforced.
    """
    return in_system / (target_utilization * max_running)


def with_some_gone(replicas: float, lasting: int, at_risk: float) -> float:
    """Replicas to have, so that ``replicas`` are left if a share above ``lasting`` is gone.

    Args:
        at_risk: that share, below 1.
    """
    return min(replicas, lasting) + max(replicas - lasting, 0.0) / (1 - at_risk)


def whole(replicas: float) -> int:
    """The next whole number of replicas, with tolerance for rounding errors."""
    return math.ceil(min(replicas, 1e9) * (1 - 1e-12))


@dataclass(frozen=True)
class Load:
    """The load of a fleet, and the capacity of one replica.

    Args:
        demand_per_s: requests/s, in the size that ``capacity_per_s`` counts.
        queueing_per_s: the part that waits if it is not served at once.
        waiting, running: requests; ``waiting`` includes those outside the engines.
        queued: waiting requests outside the engines.
        refused_per_s: requests/s that were refused.
        behind: requests that wait in each replica whose SLA is in reach.
        queues: of each replica with a cap: waiting requests, the cap, requests/s refused.
        capacity_per_s: of an average replica whose SLA is in reach; None: unknown.
        error_frac: standard error of ``capacity_per_s``, as a share.
        caps: sum of the caps, each at least the running requests.
        mean_cap: their mean; 0: there is none.
        healthy: replicas whose SLA is in reach.
        out_of_reach: replicas whose SLA is not.
    """

    demand_per_s: float
    queueing_per_s: float
    waiting: float
    running: float
    queued: float
    refused_per_s: float
    behind: tuple[float, ...]
    queues: tuple[tuple[float, float, float], ...]
    capacity_per_s: float | None
    error_frac: float
    caps: float
    mean_cap: float
    healthy: int
    out_of_reach: int


def load_of(reading: FleetReading) -> Load:
    """Sums and means over the replicas that report."""
    replicas = reading.replicas
    good = [r for r in replicas if not r.out_of_reach]
    queues = tuple(
        (r.waiting, max(r.max_running, r.running), r.refused_per_s) for r in good if r.max_running
    )
    caps = [cap for _, cap, _ in queues]
    known = [r for r in good if r.capacity_per_s]
    return Load(
        demand_per_s=sum(r.demand_per_s for r in replicas),
        queueing_per_s=sum(_let_in_per_s(r) for r in replicas),
        waiting=sum(r.waiting for r in replicas) + reading.queued,
        running=sum(r.running for r in replicas),
        queued=reading.queued,
        refused_per_s=sum(r.refused_per_s for r in replicas),
        behind=tuple(r.waiting for r in good),
        queues=queues,
        capacity_per_s=_mean_capacity([r.capacity_per_s or 0.0 for r in known]),
        error_frac=_mean([r.capacity_error_frac for r in known]) if known else 0.0,
        caps=sum(caps),
        mean_cap=_mean(caps) if caps else 0.0,
        healthy=len(good),
        out_of_reach=len(replicas) - len(good),
    )


def left_outside(load: Load, grows: float) -> float:
    """What still waits outside the engines, once they have served what they have headroom for.

    Args:
        grows: growth of the queue; below 0: what engines serve beyond arrivals, which first
            shortens their own queues.
    """
    each = max(-grows, 0.0) / max(load.healthy, 1)
    return max(load.queued - sum(max(each - waiting, 0.0) for waiting in load.behind), 0.0)


def _let_in_per_s(replica: ReplicaLoad) -> float:
    """The part of a replica's demand that waits if it is not served at once."""
    if not replica.arrivals_per_s:
        return replica.demand_per_s
    share = 1 - replica.refused_per_s / replica.arrivals_per_s
    return replica.demand_per_s * max(share, 0.0)


def idle(reading: FleetReading) -> bool:
    """Whether every replica reports no running, waiting or arriving request, and none waits
    outside.

    Requests that do not count for autoscaling add no replica, but keep the last one.
    """
    if reading.unreporting or reading.queued or reading.ongoing:
        return False
    return not any(
        r.running or r.waiting or r.arrivals_per_s or r.unscaled for r in reading.replicas
    )


def _mean_capacity(each_per_s: Sequence[float]) -> float | None:
    if not each_per_s:
        return None
    most = MOST_OVER_MEDIAN * median(each_per_s)
    return _mean([min(per_s, most) for per_s in each_per_s])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def hardly_more(wanted: float, replicas: int, part: float = 1.0) -> bool:
    """Whether ``wanted`` exceeds this number by too little for another replica.

    Args:
        part: share of the band that counts, up to 1.
    """
    band = min(MORE_FRAC * replicas, MOST_MORE) * min(part, 1.0)
    return replicas < wanted <= replicas + band


def with_spare(replicas: float) -> float:
    """The load that the remaining replicas must have headroom for before one is removed."""
    return replicas + min(max(SPARE_FRAC * replicas, LEAST_SPARE), MOST_SPARE)
