"""``--find-capacity``: the highest rate at which a policy holds the SLA in a steady state.

Capacity as in Sarathi-Serve (OSDI 2024, section 5): the percentile of the time between tokens is
within the SLA, and the median scheduling delay within 2 s. One draw of requests serves all
policies and rates, as many of it as a run takes; only the clock of their arrivals is scaled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.engine import Ground, Progress, replay
from benchmarks.fluid import fluid_limit_per_s
from benchmarks.headroom import SPREAD, MaxTokens
from benchmarks.measure import TOLERANCE, Floats
from benchmarks.policies import Plan
from benchmarks.requests import LengthStats, Request, length_stats
from benchmarks.trace import Trace
from benchmarks.traffic import Traffic, Workload, draw_traffic
from controller.config import Sla

PRECISION = 0.02  # of the rate found: what the noise of a run of this length leaves
LEAST_RUN_S = 240.0  # at 2% too high a rate, delay has grown past 2 s in its second half
RESIDENCES = 12  # ... and at least this many times as long as a request stays
LEAST_REQUESTS = 400
LOWEST, TOP = 1 / 64, 1.2  # times the fluid limit: where the search begins and ends
HOPELESS = 10  # times the delay allowed: half of the queue waits so long that it cannot recover


@dataclass(frozen=True, slots=True)
class Target:
    """What a rate must hold.

    Args:
        sla: time between tokens at a percentile; time to first token at the same, where set.
        max_median_delay_s: median scheduling delay; not looked at where ``sla.ttft_ms`` is set.
        mean_itl: the mean time between tokens is to be within the SLA, not a percentile of it.
    """

    sla: Sla
    max_median_delay_s: float = 2.0
    mean_itl: bool = False

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
        """Above the fluid limit: the run was too short for its queue to settle."""
        return self.per_s > self.fluid_limit_per_s * (1 + PRECISION)


@dataclass(frozen=True, slots=True)
class Course:
    """What every search of a comparison runs over.

    Args:
        traffic: the requests.
        run_s: how long a run is at least, by its arrivals.
        least: how many requests it has at least.
        fluid_limit_per_s: of these requests on this profile.
    """

    traffic: Traffic
    run_s: float
    least: int
    fluid_limit_per_s: float

    def requests_at(self, rate_per_s: float) -> tuple[Request, ...]:
        """The requests of a run at this rate: always the first ones."""
        n = max(math.ceil(rate_per_s * self.run_s), self.least)
        return Traffic(self.traffic.requests[:n]).at(rate_per_s)


def make_course(
    workload: Workload,
    ground: Ground,
    target: Target,
    *,
    least: int | None = None,
    gap_cv: float | None = None,
    seed: int = 0,
    least_run_s: float = LEAST_RUN_S,
    max_tokens: MaxTokens = SPREAD,
) -> Course:
    """One draw of requests, enough for a steady run at any rate that may hold.

    Args:
        least: requests of a run, at least; None: ``LEAST_REQUESTS``.
        max_tokens: what clients allow.
    """
    least = LEAST_REQUESTS if least is None else least
    stats = length_stats(draw_traffic(workload, least, gap_cv, seed).requests)
    limit = fluid_limit_per_s(ground.profile, stats, target.sla.itl_s)
    run_s = max(
        least_run_s, RESIDENCES * stats.mean_output * _longest_step_s(ground, stats, target)
    )
    n = max(math.ceil(limit * TOP * run_s), least)
    traffic = draw_traffic(workload, n, gap_cv, seed, max_tokens)
    stats = length_stats(traffic.requests)
    limit = fluid_limit_per_s(ground.profile, stats, target.sla.itl_s)
    return Course(traffic, run_s, least, limit)


def _longest_step_s(ground: Ground, stats: LengthStats, target: Target) -> float:
    """D, or without one the decode step of a full KV memory."""
    if target.sla.itl_s is not None:
        return target.sla.itl_s
    kv = ground.profile.kv_tokens
    return ground.profile.step_s(kv / stats.mean_live, kv, 0, 0)


def find_capacity(
    course: Course,
    plan: Plan,
    ground: Ground,
    target: Target,
    progress: Progress = lambda finished: None,
) -> Capacity:
    """Halve the (logarithmic) interval of rates until it is ``PRECISION`` wide.

    A rate that holds above one that does not is possible, and not looked for.
    """
    limit = course.fluid_limit_per_s
    low, high, held = limit * LOWEST, limit * TOP, False
    if limit and holds_at(course, plan, ground, target, high, progress):
        return Capacity(high, limit)
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        if holds_at(course, plan, ground, target, middle, progress):
            low, held = middle, True
        else:
            high = middle
    return Capacity(low if held else 0.0, limit)


def holds_at(
    course: Course,
    plan: Plan,
    ground: Ground,
    target: Target,
    rate_per_s: float,
    progress: Progress = lambda finished: None,
) -> bool:
    """Whether a policy holds the target at this rate."""
    trace = replay(
        course.requests_at(rate_per_s),
        plan,
        ground,
        drain=False,
        give_up=lambda now_s, arrivals_s: _hopeless(now_s, arrivals_s, target),
        progress=progress,
    )
    return not trace.gave_up and holds_target(trace, target)


def holds_target(trace: Trace, target: Target) -> bool:
    """Whether the second half of a replay that stopped at its last arrival is within the target.

    The first half fills the engine. A request that still waits at the end counts with the time it
    has waited so far.
    """
    outcomes, sla = trace.outcomes, target.sla
    half_s = (outcomes[0].request.arrival_s + trace.end_s) / 2
    late = [o for o in outcomes if o.request.arrival_s >= half_s and not o.refused]
    gaps_s = trace.gaps.length_s[trace.gaps.end_s >= half_s]
    if sla.itl_s is not None:
        if target.mean_itl:
            itl_holds = not len(gaps_s) or bool(gaps_s.mean() <= sla.itl_s * TOLERANCE)
        else:
            itl_holds = _within(gaps_s, sla.percentile, sla.itl_s)
        if not itl_holds:
            return False
    if sla.ttft_ms is not None:
        waits = [_wait_s(o.first_token_s, o.request.arrival_s, trace.end_s) for o in late]
        return _within(np.array(waits), sla.percentile, sla.ttft_ms / 1000)
    waits = [_wait_s(o.scheduled_s, o.request.arrival_s, trace.end_s) for o in late]
    return _within(np.array(waits), 50, target.max_median_delay_s)


def _within(times_s: Floats, percentile: float, limit_s: float) -> bool:
    return not len(times_s) or bool(np.percentile(times_s, percentile) <= limit_s * TOLERANCE)


def _wait_s(event_s: float | None, arrival_s: float, end_s: float) -> float:
    return (end_s if event_s is None else event_s) - arrival_s


def _hopeless(now_s: float, arrivals_s: Sequence[float], target: Target) -> bool:
    if not arrivals_s:
        return False
    return now_s - sorted(arrivals_s)[len(arrivals_s) // 2] > HOPELESS * target.wait_s
