"""Three classes in one engine, or one of them alone: the capacity of a policy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.contests.by_class import Attained, attained, holds, keeps_up, spread_over
from benchmarks.contests.race import highest
from controller.classes import ServiceClasses, parse_classes
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.replay.capacity import Course, make_course
from simulator.replay.engine import Ground, replay
from simulator.replay.verdict import Target
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request

CLASSES = parse_classes(
    {
        "gold": {"itl_ms": 50, "ttft_ms": 2000, "priority": 0},
        "silver": {"itl_ms": 100, "ttft_ms": 6000, "priority": 1},
        "batch": {"ttft_ms": 600_000, "priority": 2, "default": True},
    }
)
TOP = "gold"
GROUNDS = {
    "257-62": ("paper-fig3", "exponential:257,62"),
    "257-447": ("paper-fig3", "exponential:257,447"),
    "h100-70b": ("h100-Llama-2-70b-hf-tp4", "exponential:257,62"),
}
RUN_S = 120.0
PRECISION = 0.01
MOST = 2.5  # of the fluid limit: where a search ends
OURS, ONE_SLA, QOSERVE = "adaptive", "adaptive, one SLA for all", "qoserve"


@dataclass(frozen=True, slots=True)
class Task:
    """One policy on one draw.

    Args:
        only: the one class that this engine is for; None: all of them.
        load: of the fluid limit; None: the capacity is searched.
    """

    ground: str
    seed: int
    small: bool
    spec: str
    only: str | None = None
    load: float | None = None


def is_ours(task: Task) -> bool:
    """Whether the policy is one of this project."""
    return task.spec.startswith(OURS)


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it.

    Args:
        per_s: the capacity, or the rate that was asked for; requests/s.
        of: by class, where a rate was asked for.
        steady: whether no queue grew.
    """

    per_s: float
    of: dict[str, Attained]
    steady: bool = True


@cache
def course_of(name: str, seed: int, small: bool) -> tuple[Course, Ground]:
    profile, workload = GROUNDS[name]
    ground = Ground(load_profile(profile))
    small_s, target = 20.0 if small else RUN_S, Target(Sla(itl_ms=50.0))
    least = 40 if small else 400

    def drawn(n: int) -> Course:
        return make_course(
            load_workload(workload), ground, target, seed=seed, least=n, least_run_s=small_s
        )

    first = drawn(least)  # an engine for a class without a bound carries more than its limit
    course = drawn(math.ceil(MOST * first.fluid_limit_per_s * first.run_s))
    course = replace(course, least=least)
    return course, ground


def run_at(task: Task, rate_per_s: float) -> Trace:
    """The replay of a task at a rate."""
    course, ground = course_of(task.ground, task.seed, task.small)
    requests = spread_over(course.requests_at(rate_per_s), CLASSES, task.seed)
    spec, sla = task.spec, Sla()
    if task.only is not None:  # all requests are of this one; the rate is that of its engine
        one = CLASSES.by_name[task.only]
        sla = Sla(itl_ms=one.itl_ms, ttft_ms=one.ttft_ms)
        requests = [replace(r, service=task.only, priority=0) for r in requests]
    elif spec == ONE_SLA:
        strictest = CLASSES.by_name[TOP]
        spec, sla = OURS, Sla(itl_ms=strictest.itl_ms, ttft_ms=strictest.ttft_ms)
    else:
        ground = replace(ground, classes=CLASSES)
        if spec.startswith(QOSERVE):  # it has an order of its own
            requests = _alike(requests)
    return replay(requests, parse_policy(spec, sla, engine_of(ground.profile)), ground, drain=False)


def _alike(requests: Sequence[Request]) -> list[Request]:
    return [replace(r, priority=0) for r in requests]


def measure(task: Task) -> Found:
    """The capacity, or what each class had at a load."""
    course, _ = course_of(task.ground, task.seed, task.small)
    limit = course.fluid_limit_per_s
    if task.load is not None:
        rate_per_s = task.load * limit
        trace = run_at(task, rate_per_s)
        of = {name: attained(trace, name, one) for name, one in CLASSES.by_name.items()}
        return Found(rate_per_s, of, keeps_up(trace))
    mine = CLASSES if task.only is None else ServiceClasses({task.only: CLASSES.by_name[task.only]})

    def tried(rate_per_s: float) -> bool:
        return holds(run_at(task, rate_per_s), mine)

    per_s = highest(tried, 0.9 * limit, limit / 64, MOST * limit, PRECISION)
    return Found(max(per_s, limit / 64), {})
