"""How many replicas: Ray Serve's autoscaling policy, by queue depth and SLA capacity.

Ray Serve runs it inside its own controller about ten times a second and pickles this module by
value: it imports the standard library alone, never blocks, and reads replica metrics only.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any

DEEP_SINCE = "brimful_queue_deep_since_s"
UNSCALED = "brimful_unscaled_because"  # in the policy's state: why nothing is scaled
OUT_OF_REACH = "sla_out_of_reach"

logger = logging.getLogger("ray.serve")


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
    """N for which what is running and waiting now fills rho of every replica's cap, from 1.

    Args:
        max_running: the cap of one replica; one that is really kept to.
    """
    return max(1, math.ceil(in_engine / (target_utilization * max_running)))


class CapacityPolicy:
    """Ray Serve instantiates it once with the ``scaling`` block and calls it with its context.

    Capacity decides where the step-time model is known, queue depth alone where it is not; a queue
    above ``queue_factor`` caps for ``queue_for_s`` asks for one replica more whatever the model
    says. Ray Serve then applies its delays (up 30 s, down 600 s by default), factors and bounds.

    A cap that does not bind says nothing of how many replicas are needed: where none waits, queue
    depth asks for none more, and a cap counts as at least what runs. Replicas whose SLA is out of
    reach count for nothing, as no number of them keeps it; where all are, the number of replicas
    stays, which the log tells once and ``UNSCALED`` in the policy's state.
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
        unreachable = _sla_out_of_reach(metrics)
        running_by = metrics.get("running", {})
        caps = [
            max(cap, running_by.get(replica, cap))
            for replica, cap in metrics.get("max_running", {}).items()
            if cap > 0 and replica not in unreachable
        ]
        if not caps:
            return ctx.target_num_replicas, _unscaled(ctx, unreachable)
        if UNSCALED in ctx.policy_state:
            logger.info("The SLA is in reach again; replicas follow the load again.")
        waiting = sum(metrics.get("waiting", {}).values())
        running = sum(running_by.values())
        arrivals = sum(metrics.get("arrival_rate_per_s", {}).values())
        capacities = metrics.get("capacity_per_s", {})
        known = [c for replica, c in capacities.items() if replica not in unreachable]
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
            if not waiting:
                desired = min(desired, ctx.target_num_replicas)
        state: dict[str, Any] = {}
        if waiting > self._queue_factor * sum(caps):
            since_s = ctx.policy_state.get(DEEP_SINCE, ctx.current_time)
            state[DEEP_SINCE] = since_s
            if ctx.current_time - since_s >= self._queue_for_s:
                desired = max(desired, ctx.current_num_replicas + 1)
        # Those out of reach stand in Ray Serve's total and carry nothing inside the SLA.
        return desired + len(unreachable), state


def _sla_out_of_reach(metrics: Mapping[str, Mapping[Any, float]]) -> set[Any]:
    """The replicas whose SLA is out of reach for most of the time that Ray Serve looks back on."""
    flagged = {r for r, share in metrics.get("sla_out_of_reach", {}).items() if share >= 0.5}
    # A replica of an earlier version says it by a capacity of 0.
    return flagged | {
        r for r, capacity in metrics.get("capacity_per_s", {}).items() if not capacity
    }


def _unscaled(ctx: Any, unreachable: set[Any]) -> dict[str, Any]:
    """The policy's state while nothing is scaled; the reason is logged when it begins."""
    if not unreachable:  # nothing reported yet
        return {}
    if UNSCALED not in ctx.policy_state:
        logger.warning(
            "The SLA is out of reach: one decode alone takes longer, or nearly. No number of"
            " replicas keeps it, so the number stays at %d.",
            ctx.target_num_replicas,
        )
    return {UNSCALED: OUT_OF_REACH}
