"""One draw of a contest: the capacity of ``adaptive`` and of the strongest static engine there is.

A static engine is tuned in both of its settings: on the pilot's draw from the line on, and then on
every draw by itself, from the pilot's setting on. So no draw is served by a static setting that was
made for another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.contests.catalog import Contest, sla_of
from benchmarks.contests.race import Race
from benchmarks.contests.tuning import FINE, STEPS, Setting, climb, starts
from benchmarks.report.seeds import PILOT_SEED
from replicas.profiles.profile_file import load_profile
from simulator.replay.capacity import LOWEST, Course, make_course
from simulator.replay.engine import Ground
from simulator.replay.verdict import Target
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import length_stats

ADAPTIVE, STATIC, ALGORITHM_2 = "adaptive", "static", "paper:l0=buffer"
PRECISION = 0.01  # of a capacity: half of what a search by hand asks for
NEAR = {ADAPTIVE: 0.95, STATIC: 0.9, ALGORITHM_2: 0.85}


# Twice what is left on average in the order of arrival, with a median delay of 2 s.
LEFT_S = 4.0


@dataclass(frozen=True, slots=True)
class Task:
    """One draw of requests for all policies of a contest.

    Args:
        tuned: the pilot's static setting.
        one: the static setting that is to serve all contests on this profile; None: none is.
        small: only to see that it runs.
        max_left_s: of prompt tokens, asked for besides (``Target``); None: not asked for.
    """

    contest: Contest
    seed: int = PILOT_SEED
    small: bool = False
    tuned: Setting | None = None
    one: Setting | None = None
    max_left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """The capacity of each policy, requests/s, and the setting that reached it."""

    fluid_per_s: float
    per_s: dict[str, float] = field(default_factory=dict)
    spec: dict[str, str] = field(default_factory=dict)

    def over(self, name: str) -> float:
        """The capacity of ``adaptive`` over another's; the lowest rate where one holds none."""
        lowest = self.fluid_per_s / 64
        return max(self.per_s["adaptive"], lowest) / max(self.per_s[name], lowest)


class Draw:
    """The requests of a task, and what they are served on."""

    def __init__(self, task: Task) -> None:
        contest = task.contest
        self.profile = load_profile(contest.profile)
        self._ground = Ground(self.profile)
        self._target = Target(sla_of(contest, self.profile), max_left_s=task.max_left_s)
        self.course: Course = make_course(
            load_workload(contest.workload),
            self._ground,
            self._target,
            seed=task.seed,
            least_run_s=20.0 if task.small else contest.run_s,
            least=40 if task.small else 200,
            top=contest.top,
        )

    def race(self, near: float) -> Race:
        """One to be entered."""
        return Race(near, self.course, self._ground, self._target, PRECISION)

    def frac(self, per_s: float) -> float:
        """A capacity as a share of the fluid limit; not 0, so that a ratio of two is finite."""
        return max(per_s / self.course.fluid_limit_per_s, LOWEST)

    def starts(self) -> tuple[Setting, ...]:
        """Where tuning begins."""
        itl_s = self._target.sla.itl_s
        if itl_s is None:
            raise TypeError("a contest has an SLA")
        stats = length_stats(self.course.traffic.requests)
        return starts(self.profile, stats, itl_s, self.course.fluid_limit_per_s)


def tune(task: Task) -> Setting:
    """The best static setting of this draw, from the line on."""
    draw = Draw(task)
    race, first = draw.race(NEAR[STATIC]), draw.starts()
    steps = () if task.small else STEPS
    return climb(lambda s: race.enter(s.of(STATIC)), first, steps)


def capacities(task: tuple[Task, Sequence[Setting]]) -> list[float]:
    """The capacity of each of these static settings on a draw."""
    asked, settings = task
    draw = Draw(asked)
    found: list[float] = []
    for setting in settings:
        last = found[-1] / draw.course.fluid_limit_per_s if found else 0.0
        race = draw.race(last or NEAR[STATIC])
        race.enter(setting.of(STATIC))
        found.append(race.per_s)
    return found


def search(task: Task) -> Found:
    """The capacity of every policy on this draw."""
    draw = Draw(task)
    found = Found(draw.course.fluid_limit_per_s)

    def keep(name: str, race: Race, spec: str) -> None:
        found.per_s[name], found.spec[name] = race.per_s, race.spec or spec

    def enter(name: str, near: float, spec: str) -> None:
        race = draw.race(near)
        race.enter(spec)
        keep(name, race, spec)

    enter("adaptive", NEAR[ADAPTIVE], ADAPTIVE)
    if task.contest.default is not None:
        enter("default", task.contest.default, STATIC)
    steps = () if task.small else FINE
    if task.tuned is not None:
        tuned = task.tuned
        race = draw.race(NEAR[STATIC])
        best = climb(lambda s: race.enter(s.of(STATIC)), (tuned,), steps)
        keep("best_static", race, best.of(STATIC))
        if task.contest.algorithm_2:
            race = draw.race(NEAR[ALGORITHM_2])
            first = best, Setting(best.chunk, best.chunk)
            best = climb(lambda s: race.enter(s.of(ALGORITHM_2)), first, steps)
            keep("algorithm_2", race, best.of(ALGORITHM_2))
    if task.one is not None:
        enter("one_static", 0.8, task.one.of(STATIC))
    return found
