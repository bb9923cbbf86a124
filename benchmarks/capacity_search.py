"""``--find-capacity``: the highest rate at which a policy holds the SLA in a steady state.

Capacity as in Sarathi-Serve (OSDI 2024, section 5): the percentile of the time between tokens is
within the SLA, and the median scheduling delay within 2 s. One draw of requests serves all
policies and rates; only the clock of their arrivals is scaled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.engine import Ground, Progress, replay
from benchmarks.fluid import fluid_limit_per_s
from benchmarks.measure import TOLERANCE
from benchmarks.policies import Plan
from benchmarks.requests import length_stats
from benchmarks.trace import Trace
from benchmarks.traffic import Traffic, Workload, draw_traffic
from controller.config import Sla

PRECISION = 0.02  # of the rate found: what the noise of a run of this length leaves
LEAST_RUN_S = 240.0  # at 2% too high a rate, delay has grown past 2 s in its second half
RESIDENCES = 12  # ... and at least this many times as long as a request stays
LEAST_REQUESTS = 400
LOWEST_FRAC = 1 / 256  # of the fluid limit: below it, nothing is called a capacity
HOPELESS = 10  # times the delay allowed: half of the queue waits so long that it cannot recover


@dataclass(frozen=True, slots=True)
class Target:
    """What a rate must hold.

    Args:
        sla: time between tokens at a percentile; time to first token at the same, where set.
        max_median_delay_s: median scheduling delay; not looked at where ``sla.ttft_ms`` is set.
    """

    sla: Sla
    max_median_delay_s: float = 2.0

    @property
    def wait_s(self) -> float:
        """The waiting that is allowed, by whichever of the two counts."""
        ttft_ms = self.sla.ttft_ms
        return self.max_median_delay_s if ttft_ms is None else ttft_ms / 1000


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a search found.

    Args:
        per_s: the highest rate that held; 0 where none did.
        fluid_limit_per_s: of the same requests and the same profile.
    """

    per_s: float
    fluid_limit_per_s: float

    @property
    def too_good(self) -> bool:
        """Above the fluid limit: the queue had no time to settle."""
        return self.per_s > self.fluid_limit_per_s * (1 + PRECISION)


def steady_traffic(
    workload: Workload,
    ground: Ground,
    target: Target,
    *,
    least: int,
    gap_cv: float | None,
    seed: int,
) -> Traffic:
    """One draw of requests, long enough at the fluid limit for every search to be steady.

    Args:
        least: requests at least.
    """
    sample = draw_traffic(workload, max(least, LEAST_REQUESTS), gap_cv, seed)
    stats = length_stats(sample.requests)
    limit = fluid_limit_per_s(ground.profile, stats, target.sla.itl_s)
    step_s = target.sla.itl_s or ground.profile.step_s(1, stats.mean_live, 0, 0)
    run_s = max(LEAST_RUN_S, RESIDENCES * stats.mean_output * step_s)
    n = max(math.ceil(limit * run_s), least, LEAST_REQUESTS)
    return draw_traffic(workload, n, gap_cv, seed)


def find_capacity(
    traffic: Traffic,
    plan: Plan,
    ground: Ground,
    target: Target,
    progress: Progress = lambda finished: None,
) -> Capacity:
    """Halve the (logarithmic) interval of rates until it is ``PRECISION`` wide.

    That a rate holds which is above one that does not is possible and not looked for.
    """
    limit = fluid_limit_per_s(ground.profile, length_stats(traffic.requests), target.sla.itl_s)
    if not limit:
        return Capacity(0.0, 0.0)

    def holds(rate: float) -> bool:
        trace = replay(
            traffic.at(rate),
            plan,
            ground,
            drain=False,
            give_up=lambda now_s, arrivals_s: _hopeless(now_s, arrivals_s, target),
            progress=progress,
        )
        return not trace.gave_up and holds_target(trace, target)

    low, high = limit * LOWEST_FRAC, limit * 1.1
    while holds(high):
        low, high = high, high * 1.25
    held = low > limit * LOWEST_FRAC
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        if holds(middle):
            low, held = middle, True
        else:
            high = middle
    return Capacity(low if held else 0.0, limit)


def holds_target(trace: Trace, target: Target) -> bool:
    """Whether the second half of a replay that stopped at its last arrival is within the target.

    The first half fills the engine. A request that still waits at the end counts with the time it
    has waited so far.
    """
    outcomes, sla = trace.outcomes, target.sla
    half_s = (outcomes[0].request.arrival_s + trace.end_s) / 2
    late = [o for o in outcomes if o.request.arrival_s >= half_s and not o.refused]
    gaps_s = trace.gaps.length_s[trace.gaps.end_s >= half_s]
    if sla.itl_s is not None and not _within(gaps_s, sla.percentile, sla.itl_s):
        return False
    if sla.ttft_ms is not None:
        waits = [_wait_s(o.first_token_s, o.request.arrival_s, trace.end_s) for o in late]
        return _within(np.array(waits), sla.percentile, sla.ttft_ms / 1000)
    waits = [_wait_s(o.scheduled_s, o.request.arrival_s, trace.end_s) for o in late]
    return _within(np.array(waits), 50, target.max_median_delay_s)


def _within(times_s: np.ndarray, percentile: float, limit_s: float) -> bool:
    return not len(times_s) or bool(np.percentile(times_s, percentile) <= limit_s * TOLERANCE)


def _wait_s(event_s: float | None, arrival_s: float, end_s: float) -> float:
    return (end_s if event_s is None else event_s) - arrival_s


def _hopeless(now_s: float, arrivals_s: Sequence[float], target: Target) -> bool:
    if not arrivals_s:
        return False
    return now_s - sorted(arrivals_s)[len(arrivals_s) // 2] > HOPELESS * target.wait_s
