"""``--find-capacity``: the highest rate at which a policy holds the SLA in a steady state.

Capacity as in Sarathi-Serve (OSDI 2024, section 5): the percentile of the ITL is within the SLA,
and the median scheduling delay within 2 s. All policies and rates use the first requests of one
seed; only their arrival times are scaled.
"""

import math
from dataclasses import dataclass

from simulator.replay.engine import Progress, Scenario, replay
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.verdict import Target, Watch, fault_of
from simulator.virtual.plan import Plan
from simulator.workloads.max_tokens import SPREAD, MaxTokens
from simulator.workloads.requests import LengthStats, Request, length_stats
from simulator.workloads.traffic import Traffic, Workload, draw_traffic

PRECISION = 0.02  # relative error of the rate: the noise of such a run
LEAST_RUN_S = 240.0  # at a rate 2% too high, delay grows past 2 s in the second half
RESIDENCES = 12  # least length of a run, in times that a request stays
LEAST_REQUESTS = 400
LOWEST, TOP = 1 / 64, 1.2  # bounds of the search, times the fluid limit


@dataclass(frozen=True, slots=True)
class Failure:
    """A rate that did not hold, and what was broken, in words."""

    rate_per_s: float
    what: str


@dataclass(frozen=True, slots=True)
class Capacity:
    """The result of a search.

    Args:
        per_s: the highest rate that held; 0 if none did.
        fluid_limit_per_s: for these requests and this profile.
        failure: at the lowest rate that did not hold; None if all did.
    """

    per_s: float
    fluid_limit_per_s: float
    failure: Failure | None = None

    @property
    def too_good(self) -> bool:
        """Whether it is above the fluid limit: the run was too short for its queue to settle."""
        return self.per_s > self.fluid_limit_per_s * (1 + PRECISION)


@dataclass(frozen=True, slots=True)
class SearchTraffic(Traffic):
    """The requests and bounds that all searches of a comparison share.

    Args:
        run_s: least length of a run, by its arrivals.
        least: least number of its requests.
        fluid_limit_per_s: for these requests on this profile.
        top: the highest rate of a search, times the fluid limit.
    """

    run_s: float
    least: int
    fluid_limit_per_s: float
    top: float = TOP

    def requests_at(self, rate_per_s: float) -> tuple[Request, ...]:
        """The first requests of the traffic, for a run at this rate."""
        n = max(math.ceil(rate_per_s * self.run_s), self.least)
        return Traffic(self.requests[:n]).at(rate_per_s)


def search_traffic(
    workload: Workload,
    scenario: Scenario,
    target: Target,
    *,
    least: int | None = None,
    gap_cv: float | None = None,
    seed: int = 0,
    least_run_s: float = LEAST_RUN_S,
    max_tokens: MaxTokens = SPREAD,
    top: float = TOP,
) -> SearchTraffic:
    """Requests of one seed, enough for a steady run at any rate that may hold.

    Args:
        top: end of searches, times the fluid limit.
        least: least number of requests of a run; None: ``LEAST_REQUESTS``.
        max_tokens: rule for ``max_tokens``.
    """
    least = LEAST_REQUESTS if least is None else least
    stats = length_stats(draw_traffic(workload, least, gap_cv, seed).requests)
    limit = fluid_limit_per_s(scenario.profile, stats, target.sla.itl_s)
    run_s = max(
        least_run_s, RESIDENCES * stats.mean_output * _longest_step_s(scenario, stats, target)
    )
    n = max(math.ceil(limit * top * run_s), least)
    traffic = draw_traffic(workload, n, gap_cv, seed, max_tokens)
    stats = length_stats(traffic.requests)
    limit = fluid_limit_per_s(scenario.profile, stats, target.sla.itl_s)
    return SearchTraffic(traffic.requests, run_s, least, limit, top)


def _longest_step_s(scenario: Scenario, stats: LengthStats, target: Target) -> float:
    """D; without one, the decode step with full KV memory."""
    if target.sla.itl_s is not None:
        return target.sla.itl_s
    kv = scenario.profile.kv_tokens
    return scenario.profile.step_s(kv / stats.mean_held, kv, 0, 0)


def find_capacity(
    traffic: SearchTraffic,
    plan: Plan,
    scenario: Scenario,
    target: Target,
    progress: Progress = lambda finished: None,
) -> Capacity:
    """Bisect the (logarithmic) interval of rates until it is ``PRECISION`` wide.

    If the first rate inside it does not hold either, the lowest is tried next, to stop early if the
    target is broken at any rate. A rate that holds above one that does not is not searched.
    """
    limit = traffic.fluid_limit_per_s
    if not limit:
        return Capacity(0.0, limit, Failure(0.0, "the step of one request is longer than the SLA"))

    def broken(rate_per_s: float) -> Failure | None:
        fault = try_rate(traffic, plan, scenario, target, rate_per_s, progress)
        return None if fault is None else Failure(rate_per_s, fault)

    low, high = limit * LOWEST, limit * traffic.top
    failure = broken(high)
    if failure is None:
        return Capacity(high, limit)
    held = False  # the lowest rate, or any other
    while high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        found = broken(middle)
        if found is None:
            low, held = middle, True
            continue
        high, failure = middle, found
        if not held:
            lowest = broken(low)
            if lowest:
                return Capacity(0.0, limit, lowest)
            held = True
    return Capacity(low, limit, failure)


def holds_at(
    traffic: SearchTraffic, plan: Plan, scenario: Scenario, target: Target, rate_per_s: float
) -> bool:
    """Whether a policy holds the target at this rate."""
    return try_rate(traffic, plan, scenario, target, rate_per_s) is None


def try_rate(
    traffic: SearchTraffic,
    plan: Plan,
    scenario: Scenario,
    target: Target,
    rate_per_s: float,
    progress: Progress = lambda finished: None,
) -> str | None:
    """What of the target a policy breaks at this rate; None: nothing."""
    requests = traffic.requests_at(rate_per_s)
    watch = Watch(requests, target)
    trace = replay(requests, plan, scenario, drain=False, give_up=watch, progress=progress)
    return watch.fault or fault_of(trace, target)
