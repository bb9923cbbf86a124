"""How many replicas: Ray Serve's autoscaling policy, by queue depth and SLA capacity.

Ray Serve runs it inside its own controller about ten times a second and pickles this module by
value: it imports the standard library alone, never blocks, and reads replica metrics only.
"""

import math
from collections.abc import Mapping
from typing import Any

DEEP_SINCE = "brimful_queue_deep_since_s"


def replicas_needed(
    arrival_rate_per_s: float,
    backlog: float,
    capacity_per_s: float,
    *,
    drain_s: float,
    target_utilization: float,
) -> int:
    """N = ceil((arrival rate + backlog / T_drain) / (rho x capacity of one replica)), from 1.

    Args:
        backlog: requests waiting now, to be gone within ``drain_s``.
        capacity_per_s: requests/s one replica carries inside the SLA; above 0.
        target_utilization: rho, the share of its capacity a replica should carry.
    """
    demand = arrival_rate_per_s + backlog / drain_s
    return max(1, math.ceil(demand / (target_utilization * capacity_per_s)))


def replicas_for_queue(in_engine: float, max_running: float, target_utilization: float) -> int:
    """N for which what is running and waiting now fills rho of every replica's cap, from 1."""
    return max(1, math.ceil(in_engine / (target_utilization * max_running)))


class CapacityPolicy:
    """Ray Serve instantiates it once with the ``scaling`` block and calls it with its context.

    Capacity decides where the step-time model is known, queue depth alone where it is not; a queue
    above ``queue_factor`` caps for ``queue_for_s`` asks for one replica more whatever the model
    says. Ray Serve then applies its delays (up 30 s, down 600 s by default), factors and bounds.
    """

    def __init__(
        self, target_utilization: float, drain_s: float, queue_factor: float, queue_for_s: float
    ) -> None:
        self._rho = target_utilization
        self._drain_s = drain_s
        self._queue_factor = queue_factor
        self._queue_for_s = queue_for_s

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        """``(desired replicas, state)`` from an ``AutoscalingContext``."""
        metrics: Mapping[str, Mapping[Any, float]] = ctx.aggregated_metrics or {}
        caps = list(metrics.get("max_running", {}).values())
        if not caps or sum(caps) <= 0:
            return ctx.target_num_replicas, {}  # nothing heard yet: stay
        waiting = sum(metrics.get("waiting", {}).values())
        running = sum(metrics.get("running", {}).values())
        arrivals = sum(metrics.get("arrival_rate_per_s", {}).values())
        known = [c for c in metrics.get("capacity_per_s", {}).values() if c > 0]
        if known:
            desired = replicas_needed(
                arrivals,
                waiting,
                sum(known) / len(known),
                drain_s=self._drain_s,
                target_utilization=self._rho,
            )
        else:
            desired = replicas_for_queue(running + waiting, sum(caps) / len(caps), self._rho)
        state: dict[str, Any] = {}
        if waiting > self._queue_factor * sum(caps):
            since_s = ctx.policy_state.get(DEEP_SINCE, ctx.current_time)
            state[DEEP_SINCE] = since_s
            if ctx.current_time - since_s >= self._queue_for_s:
                desired = max(desired, ctx.current_num_replicas + 1)
        return desired, state
