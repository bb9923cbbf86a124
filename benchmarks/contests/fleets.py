"""Three classes in a fleet of three engines: what it carries, by who gets which request."""

import math
from dataclasses import dataclass, replace
from functools import cache

from benchmarks.contests.by_class import holds, spread_over
from benchmarks.contests.classes import CLASSES, GROUNDS, MOST, OURS, PRECISION, QOSERVE, RUN_S
from benchmarks.contests.race import highest
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from serve_app.routing.gather import ends_of
from serve_app.routing.settings import promised
from simulator.replay.capacity import Course, make_course
from simulator.replay.engine import Ground
from simulator.replay.fleet import ByClass, Router, replay_fleet, together
from simulator.replay.verdict import Target
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload

ENGINES = 3
GATHERED, EVEN, SEPARATE = "gathered", "even", "separate"
NEAR = {GATHERED: 1.15, EVEN: 1.05, SEPARATE: 0.95}  # of the fluid limit: where a search begins


@dataclass(frozen=True, slots=True)
class FleetTask:
    """One policy on one draw, whose capacity is searched.

    Args:
        routed: `gathered` by class; `even`: where most room is, whatever the class; `separate`: an
            engine for each class.
    """

    ground: str
    seed: int
    small: bool
    spec: str
    routed: str


def is_ours(task: FleetTask) -> bool:
    """Whether the policy is one of this project."""
    return task.spec.startswith(OURS)


@cache
def course_of(name: str, seed: int, small: bool) -> tuple[Course, Ground]:
    """Requests of a run of all engines; its fluid limit is one engine's."""
    profile, workload = GROUNDS[name]
    ground = Ground(load_profile(profile), classes=CLASSES)
    run_s, target, least = 20.0 if small else RUN_S, Target(Sla(itl_ms=50.0)), 40 if small else 400

    def drawn(n: int) -> Course:
        return make_course(
            load_workload(workload), ground, target, seed=seed, least=n, least_run_s=run_s
        )

    first = drawn(least)
    n = math.ceil(ENGINES * MOST * first.fluid_limit_per_s * run_s)
    return replace(drawn(n), least=least, fluid_limit_per_s=first.fluid_limit_per_s), ground


def run_at(task: FleetTask, rate_per_s: float) -> tuple[Trace, ...]:
    """The replay of a task at a rate of each engine; a trace an engine."""
    course, ground = course_of(task.ground, task.seed, task.small)
    requests = spread_over(course.requests_at(ENGINES * rate_per_s), CLASSES, task.seed)
    router: Router | ByClass
    if task.routed == SEPARATE:
        router = ByClass(list(CLASSES.by_name))
    else:
        ends = ends_of(promised(CLASSES)) if task.routed == GATHERED else {}
        router = Router(ENGINES, task.seed, ends)
    if task.spec.startswith(QOSERVE):  # it has an order of its own
        requests = [replace(r, priority=0) for r in requests]
    plan = parse_policy(task.spec, Sla(), engine_of(ground.profile))
    return replay_fleet(requests, plan, ground, ENGINES, router)


def measure(task: FleetTask) -> float:
    """The capacity, requests/s of an engine."""
    limit = course_of(task.ground, task.seed, task.small)[0].fluid_limit_per_s

    def tried(rate_per_s: float) -> bool:
        return holds(together(run_at(task, rate_per_s)), CLASSES)

    per_s = highest(tried, NEAR[task.routed] * limit, limit / 64, MOST * limit, PRECISION)
    return max(per_s, limit / 64)
