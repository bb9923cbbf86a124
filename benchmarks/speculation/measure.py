"""What an engine that speculates carries inside its SLA, and how soon its tokens come.

Acceptance is the chance of a draft to be accepted after those before it. Drafting one token for the
batch takes ``DRAFT_FRAC`` of a step of one decode, as a head of one layer does (EAGLE); a draft is
verified like a prompt token.
"""

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.contests.race import highest
from benchmarks.speculation.table import MOST_DRAFTS, DraftedSteps, table
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.capacity import Course, make_course
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import late_share, summarise
from simulator.replay.verdict import Target, Watch, fault_of
from simulator.virtual.plan import Plan, Speculation, engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import LengthStats, length_stats
from simulator.workloads.traffic import Phase, draw_phases, draw_traffic

WORKLOAD, ITL_MS, TTFT_MS = "exponential:257,62", 50.0, 2000.0
DRAFT_FRAC = 0.04
TUNED_FOR = 0.7  # acceptance for which a table is made that is not made again
OFF, TABLE, KNOWN = "off", "table", "known"
RUN_S, LEAST_REQUESTS, PRECISION = 45.0, 300, 0.03
NEAR, MOST = 0.9, 2.0  # times the fluid limit without drafts: where a search begins and ends
LOW = 0.2  # times it: low load
# Times it, and seconds: the highest is 0.9 of what the best fixed number of drafts carries.
MIDDLE, PEAK, PHASE_S = 0.5, 0.85, 30.0
SLA = Sla(itl_ms=ITL_MS, ttft_ms=TTFT_MS)


@dataclass(frozen=True, slots=True)
class Case:
    """An engine that speculates."""

    profile: str
    acceptance: float


@dataclass(frozen=True, slots=True)
class Task:
    """One arm of one row.

    Args:
        arm: ``off``; a number, of drafts in each step; ``table``: by batch size, for the row's
            acceptance.
    """

    case: Case
    arm: str
    seed: int
    small: bool = False


@dataclass(frozen=True, slots=True)
class DayTask:
    """One arm over a day, or over two that follow each other.

    Args:
        acceptances: of each.
        arm: as for ``Task``, but ``table`` is for ``TUNED_FOR``; ``known``: for each of them.
    """

    acceptances: tuple[float, ...]
    arm: str
    seed: int
    small: bool = False


def measure(task: Task) -> tuple[float, float]:
    """Capacity, requests/s, and mean time per token at low load, ms."""
    case, ground, target = task.case, Ground(load_profile(task.case.profile)), Target(SLA)
    plan = plan_of(case, task.arm, case.acceptance)
    run_s, least = (5.0, 40) if task.small else (RUN_S, LEAST_REQUESTS)
    course = make_course(
        load_workload(WORKLOAD), ground, target, least=least, least_run_s=run_s, seed=task.seed,
        top=MOST,
    )  # fmt: skip
    limit = course.fluid_limit_per_s
    precision = 0.5 if task.small else PRECISION
    per_s = highest(
        lambda rate: _holds(course, plan, ground, target, rate),
        NEAR * limit, limit / 64, MOST * limit, precision,
    )  # fmt: skip
    requests = course.traffic.at(LOW * limit)[:least]
    low = summarise(task.arm, replay(requests, plan, ground), SLA).tpot_ms.mean
    return per_s, low or 0.0


def _holds(course: Course, plan: Plan, ground: Ground, target: Target, per_s: float) -> bool:
    requests = course.requests_at(per_s)
    watch = Watch(requests, target)
    trace = replay(requests, plan, ground, drain=False, give_up=watch)
    return not trace.gave_up and fault_of(trace, target) is None


def measure_day(task: DayTask) -> tuple[float, float, float]:
    """Mean time per token, ms; share of late deliveries; p99 of the time to first token, s."""
    found = [_day(task, acceptance) for acceptance in task.acceptances]
    tpot, late, ttft = (float(np.mean(one)) for one in zip(*found, strict=True))
    return tpot, late, ttft


def _day(task: DayTask, acceptance: float) -> tuple[float, float, float]:
    case = Case("paper-fig3", acceptance)
    profile, workload = load_profile(case.profile), load_workload(WORKLOAD)
    limit = make_course(workload, Ground(profile), Target(SLA)).fluid_limit_per_s
    seconds = 4.0 if task.small else PHASE_S
    loads = LOW, MIDDLE, PEAK, MIDDLE, LOW
    phases = [Phase(workload, load * limit, seconds) for load in loads]
    warm_up = draw_phases([Phase(workload, MIDDLE * limit, seconds / 2)], None, task.seed + 1000)
    plan = plan_of(case, task.arm, acceptance if task.arm == KNOWN else TUNED_FOR)
    trace = replay(draw_phases(phases, None, task.seed), plan, Ground(profile, warm_up=warm_up))
    summary = summarise(task.arm, trace, SLA)
    late = late_share(trace, SLA) or 0.0
    return summary.tpot_ms.mean or 0.0, late, (summary.ttft_ms.p99 or 0.0) / 1000


def plan_of(case: Case, arm: str, tuned_for: float) -> Plan:
    """``adaptive`` with these drafts.

    Args:
        tuned_for: the acceptance that a table is made for.
    """
    profile = load_profile(case.profile)
    plan = parse_policy("adaptive", SLA, engine_of(profile))
    if arm == OFF:
        return plan
    lengths = lengths_of()
    draft_s = DRAFT_FRAC * profile.step_s(1, lengths.mean_held, 0, 0)
    drafts = Speculation(tokens=MOST_DRAFTS, acceptance=case.acceptance, draft_s=draft_s)
    if arm not in (TABLE, KNOWN):
        return replace(plan, speculation=drafts.model_copy(update={"tokens": int(arm)}))
    steps = DraftedSteps(
        profile.step_s,
        tuned_for,
        draft_s,
        lengths.mean_held,
        lengths.mean_input / lengths.mean_output,
        lengths.mean_context,
        SLA.itl_s,
    )
    by_batch = tuple(table(steps, profile.max_num_seqs))
    return replace(plan, speculation=drafts.model_copy(update={"by_batch": by_batch}))


def lengths_of() -> LengthStats:
    """The workload's lengths, from 4,000 draws."""
    return length_stats(draw_traffic(load_workload(WORKLOAD), 4000, None, 0).requests)
