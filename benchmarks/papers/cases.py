"""Runs of many replays in a few processes: what `make tables` is made of."""

import math
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace

from tqdm import tqdm

from controller.config import Sla
from replicas.profile import StepProfile
from replicas.profile_file import load_profile
from simulator.replay.measure import Summary
from simulator.virtual.plan import Plan, Speculation, engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.max_tokens import SPREAD, MaxTokens
from simulator.workloads.requests import Request
from simulator.workloads.traffic import draw_requests

LEAST_RUN_S = 150.0  # of a capacity search's runs: 3,000 steps


@dataclass(frozen=True, slots=True)
class Case:
    """One policy on one workload.

    Args:
        key: what its result is found by.
        requests: the workload itself, where no name stands for it.
        rate: requests/s; infinite: all at once; None: search the capacity.
        mean_itl: the capacity's criterion is the mean time between tokens, not a percentile.
        max_tokens: what clients allow, of requests that do not bring it.
    """

    key: tuple[str, ...]
    spec: str
    workload: str = ""
    n: int = 1000
    rate: float | None = math.inf
    seed: int = 101
    profile: str = "paper-fig3"
    kv_tokens: int | None = None
    sla: Sla = field(default_factory=Sla)
    requests: tuple[Request, ...] = ()
    mean_itl: bool = False
    shared_prefix: int = 0
    speculation: Speculation | None = None
    max_tokens: MaxTokens = SPREAD


@dataclass(frozen=True, slots=True)
class Result:
    """What a case came to.

    Args:
        latency_s: of each finished request, from arrival to its last token.
        fluid_per_s: the fluid limit, where a capacity was searched.
    """

    summary: Summary
    latency_s: tuple[float, ...]
    prefill_tokens: int
    fluid_per_s: float | None = None


def plan_of(case: Case, profile: StepProfile) -> Plan:
    """The case's policy on the card's default engine."""
    plan = parse_policy(case.spec, case.sla, engine_of(profile))
    return replace(plan, speculation=case.speculation)


def run_case(case: Case) -> Result:
    """One replay, or one search and the replay at the capacity found."""
    from simulator.replay.engine import Ground, replay
    from simulator.replay.measure import summarise

    profile = load_profile(case.profile).with_kv_tokens(case.kv_tokens)
    plan = plan_of(case, profile)
    ground = Ground(profile, shared_prefix_tokens=case.shared_prefix)
    fluid = None
    capacity = None
    if case.rate is None:
        from simulator.replay.capacity import find_capacity, make_course
        from simulator.replay.verdict import Target

        target = Target(case.sla, mean_itl=case.mean_itl)
        course = make_course(
            load_workload(case.workload),
            ground,
            target,
            seed=case.seed,
            least_run_s=LEAST_RUN_S,
            max_tokens=case.max_tokens,
        )
        found = find_capacity(course, plan, ground, target)
        capacity, fluid = found.per_s, found.fluid_limit_per_s
        requests = course.requests_at(capacity or fluid)
    else:
        requests = case.requests or draw_requests(
            load_workload(case.workload), case.n, case.rate, None, case.seed, case.max_tokens
        )
    trace = replay(requests, plan, ground)
    summary = summarise(case.spec, trace, case.sla)
    if capacity is not None:
        summary = replace(summary, capacity_per_s=capacity)
    latency_s = tuple(
        o.finished_s - o.request.arrival_s for o in trace.outcomes if o.finished_s is not None
    )
    prefill = int(trace.column("prefill_tokens").sum())
    return Result(summary, latency_s, prefill, fluid)


def run_cases(cases: Sequence[Case], workers: int | None = None) -> dict[tuple[str, ...], Result]:
    """All cases, by key; a bar on stderr counts them."""
    context = multiprocessing.get_context("spawn")  # vLLM's threads do not survive a fork
    with ProcessPoolExecutor(workers or os.cpu_count(), mp_context=context) as pool:
        waiting = {pool.submit(run_case, case): case for case in cases}
        done = tqdm(as_completed(waiting), total=len(cases), file=sys.stderr)
        return {waiting[future].key: future.result() for future in done}
