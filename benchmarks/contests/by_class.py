"""Requests of service classes in a replay, and whether each class keeps its SLO."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controller.classes import ServiceClass, ServiceClasses
from simulator.replay.measure import TOLERANCE
from simulator.virtual.trace import Trace
from simulator.workloads.requests import Request

# First tokens per arrival in the second half, all classes together. With fewer, a queue grows that
# a deadline of minutes would hide in a shorter run.
SERVED_FRAC = 0.98


def spread_over(requests: Sequence[Request], classes: ServiceClasses, seed: int) -> list[Request]:
    """These requests, each with a random class and its priority."""
    names = list(classes.by_name)
    drawn = np.random.default_rng((seed, 3)).integers(len(names), size=len(requests)).tolist()
    return [
        replace(r, service=names[k], priority=classes.by_name[names[k]].priority)
        for r, k in zip(requests, drawn, strict=True)
    ]


def attained(trace: Trace, name: str, slo: ServiceClass) -> float:
    """SLO attainment of one class in the second half of a run.

    Returns:
        The lesser of two shares: first tokens within the class's TTFT, of the requests whose
        deadline or first token came before the end; and gaps between tokens within its ITL. A
        share without a target is 1.
    """
    half_s, outcomes, gaps = trace.end_s / 2, trace.outcomes, trace.gaps
    itl_s = np.inf if slo.itl_ms is None else slo.itl_ms / 1000 * TOLERANCE
    ttft_s = np.inf if slo.ttft_ms is None else slo.ttft_ms / 1000 * TOLERANCE
    mine = np.array([o.request.service == name for o in outcomes], dtype=bool)
    arrived_s = np.array([o.request.arrival_s for o in outcomes], dtype=float)
    first_s = np.array([o.first_token_s for o in outcomes], dtype=float) - arrived_s
    known = mine & (arrived_s >= half_s)
    # A request that still waits at the end may yet be in time, unless its deadline has passed.
    known &= ~np.isnan(first_s) | (arrived_s + ttft_s < trace.end_s)
    in_time = first_s <= ttft_s
    counted = mine[gaps.request] & (gaps.end_s >= half_s)
    late = gaps.length_s > itl_s
    return min(_share(in_time[known]), _share(~late[counted]))


def _share(true: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> float:
    return float(true.mean()) if len(true) else 1.0


def keeps_up(trace: Trace) -> bool:
    """Whether no queue grows in the second half."""
    half_s = trace.end_s / 2
    came = sum(o.request.arrival_s >= half_s for o in trace.outcomes)
    first = [o.first_token_s for o in trace.outcomes if o.first_token_s is not None]
    return sum(s >= half_s for s in first) >= SERVED_FRAC * came


def holds(trace: Trace, classes: ServiceClasses) -> bool:
    """Whether every class keeps its SLO at its percentile, and no queue grows."""
    return keeps_up(trace) and all(
        attained(trace, name, one) >= one.percentile / 100 for name, one in classes.by_name.items()
    )
