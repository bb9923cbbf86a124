"""One replay: some minutes of a day's online requests on one engine, beside batches or alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from controller.classes import parse_classes
from controller.config import Sla
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.fleet.traffic import Rates, by_day, read_rates, shipped_rates
from simulator.replay.engine import replay
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import TOLERANCE
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import LengthStats, Request, length_stats
from simulator.workloads.traffic import draw_traffic

SERVICE = "servegen-m-small"
LENGTHS = "azure-2023-conversation"
OFFLINE = "exponential:512,256"
ITL_MS, TTFT_MS = 50.0, 2000.0
ENGINES = 20  # of the fleet that the day is for; one of them is replayed
PEAK = 0.85  # of what steps of 50 ms carry, at the highest step of a day
COLD_S, RUN_S, LAST_S = 20.0, 80.0, 8.0  # what comes in the last seconds has no time to end
ONLINE, BATCH = "online", "batch"
SLA = Sla(itl_ms=ITL_MS, ttft_ms=TTFT_MS)
CLASSES = parse_classes(
    {
        ONLINE: {"itl_ms": ITL_MS, "ttft_ms": TTFT_MS, "priority": 0, "default": True},
        BATCH: {"priority": 10, "sheddable": True, "autoscale": False},
    }
)

Hour = Literal["trough", "mid", "peak"]
QUANTILES: dict[Hour, float] = {"trough": 0.05, "mid": 0.5, "peak": 1.0}  # of a day's steps
Load = Literal["online", "batch", "both"]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Case:
    """An engine in ten minutes of a day."""

    profile: str
    day: int
    hour: Hour
    run_s: float = RUN_S
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on a case.

    Args:
        load: what is sent: one class alone, or both.
        classed: the engine knows what each class is promised; else all have the SLA.
    """

    case: Case
    spec: str
    load: Load
    classed: bool = True


@dataclass(frozen=True, slots=True)
class Figures:
    """What a replay showed, after ``COLD_S``.

    Args:
        offline_per_s: tokens of batches.
        good_frac: online requests that had their first token and 99% of their others in time.
        late_frac: online tokens after a first one that were late.
        busy_frac: the share of time in which a step ran.
        preemptions: of requests of batches.
    """

    offline_per_s: float
    good_frac: float
    late_frac: float
    itl_p99_ms: float
    ttft_p99_ms: float
    busy_frac: float
    preemptions: int


def is_ours(task: Task) -> bool:
    """Whether it stands on this project's policy."""
    return task.spec.startswith("adaptive")


@cache
def day_of(day: int) -> Rates:
    """A day's rates, with its highest step at 1."""
    rates = by_day(read_rates(shipped_rates())[SERVICE])[day - 1]
    return rates.times(1 / max(rates.rate_per_s))


def step_of(case: Case) -> tuple[float, float]:
    """The rate of that step, over the day's highest, and the CV of one engine's gaps.

    Of requests that go to one of N engines at random, gaps have the CV sqrt(1 + (c^2 - 1) / N).
    """
    rates = day_of(case.day)
    per_s = np.array(rates.rate_per_s)
    asked = np.quantile(per_s, QUANTILES[case.hour])
    k = int(np.argmin(np.abs(per_s - asked)))
    cv = rates.gap_cv[k] or 1.0
    return float(per_s[k]), math.sqrt(1 + max(cv**2 - 1, 0.0) / ENGINES)


@cache
def stats_of(workload: str) -> LengthStats:
    return length_stats(draw_traffic(load_workload(workload), 20_000, 1.0, 1).requests)


def rate_of(case: Case) -> float:
    """Online requests/s."""
    limit = fluid_limit_per_s(load_profile(case.profile), stats_of(LENGTHS), ITL_MS / 1000)
    return PEAK * limit * step_of(case)[0]


def online_of(case: Case) -> list[Request]:
    """The online requests."""
    per_s, (_, cv) = rate_of(case), step_of(case)
    n = math.ceil(per_s * case.run_s * 1.5) + 20
    seed = 100 * case.seed + case.day
    drawn = draw_traffic(load_workload(LENGTHS), n, cv, seed).at(per_s)
    return [replace(r, service=ONLINE) for r in drawn if r.arrival_s < case.run_s]


def offline_of(case: Case) -> list[Request]:
    """More requests of batches than can be answered, all there from the start."""
    profile, stats = load_profile(case.profile), stats_of(OFFLINE)
    most, chunk = profile.max_num_seqs, profile.max_num_batched_tokens
    decode_s = profile.step_s(most, most * stats.mean_held, 0, 0) / most
    prompt_s = profile.step_s(0, 0, chunk, chunk * stats.mean_context) / chunk
    each_s = stats.mean_input * prompt_s + stats.mean_output * decode_s
    n = math.ceil(1.2 * case.run_s / each_s) + most
    drawn = draw_traffic(load_workload(OFFLINE), n, 1.0, case.seed + 1000).requests
    priority = CLASSES.by_name[BATCH].priority
    return [replace(r, arrival_s=0.0, service=BATCH, priority=priority) for r in drawn]


def run(task: Task) -> Figures:
    """Replay it."""
    case = task.case
    requests: list[Request] = []
    if task.load != "online":
        requests += offline_of(case)
    if task.load != "batch":
        requests += online_of(case)
    requests.append(Request(case.run_s, 1, 1, 1, priority=10, service=BATCH))  # the end
    profile = load_profile(case.profile)
    ground = Ground(profile, classes=CLASSES if task.classed else None)
    sla = Sla() if task.load == "batch" else SLA
    plan = parse_policy(task.spec, sla, engine_of(profile))
    return figures_of(replay(requests, plan, ground, drain=False))


def figures_of(trace: Trace) -> Figures:
    """The figures of a replay."""
    outcomes, gaps, span_s = trace.outcomes, trace.gaps, trace.end_s - COLD_S
    online = np.array([o.request.service == ONLINE for o in outcomes], dtype=bool)
    counted = gaps.end_s >= COLD_S
    mine = online[gaps.request]
    first_s = [o.first_token_s for o in outcomes if o.request.service == BATCH and o.first_token_s]
    tokens = int((counted & ~mine).sum()) + sum(s >= COLD_S for s in first_s)
    late = gaps.length_s > ITL_MS / 1000 * TOLERANCE
    late_of = np.bincount(gaps.request[late], minlength=len(outcomes))
    good, ttfts_s = [], []
    for k in np.flatnonzero(online).tolist():
        one = outcomes[k]
        if not COLD_S <= one.request.arrival_s < trace.end_s - LAST_S:
            continue
        until_s = trace.end_s if one.first_token_s is None else one.first_token_s
        ttfts_s.append(until_s - one.request.arrival_s)
        in_time = one.first_token_s is not None and ttfts_s[-1] <= TTFT_MS / 1000 * TOLERANCE
        good.append(in_time and late_of[k] <= 0.01 * (one.tokens - 1) * TOLERANCE)
    lengths = gaps.length_s[counted & mine]
    steps = [s for s in trace.steps if s.end_s >= COLD_S]
    return Figures(
        tokens / span_s,
        _mean(good),
        _mean(late[counted & mine].tolist()),
        _p99(lengths.tolist()),
        _p99(ttfts_s),
        min(sum(s.duration_s for s in steps) / span_s, 1.0),
        sum(o.preemptions for o in outcomes if o.request.service == BATCH),
    )


def most_offline_per_s(profile: StepProfile, rate_per_s: float) -> float:
    """Tokens/s of batches that steps of the ITL leave beside online requests (fluid).

    In a second 1 / D steps have D - c0 each for tokens; online requests take c3 E[in] + (c1 + c2 m)
    E[out] of that, and the rest is for requests of batches, as many tokens of which as they are.
    """
    limit = fluid_limit_per_s(profile, stats_of(LENGTHS), ITL_MS / 1000)
    offline = stats_of(OFFLINE)
    of_batch = fluid_limit_per_s(profile, offline, ITL_MS / 1000)
    return max(1 - rate_per_s / limit, 0.0) * of_batch * offline.mean_output


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 1.0


def _p99(values_s: Sequence[float]) -> float:
    return float(np.percentile(values_s, 99)) * 1000 if len(values_s) else 0.0
