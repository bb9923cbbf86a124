"""A policy on one draw of a contest, and a rival tuned on a pilot's."""

from dataclasses import dataclass

from benchmarks.contests.catalog import Contest
from benchmarks.contests.contest import ADAPTIVE, NEAR, STATIC, Draw, Task
from benchmarks.contests.sweeps import Point, around, first_points
from benchmarks.contests.tuning import Setting, climb_by

STEPS = (0.12,)  # of a rival's search: as coarse as the first round of the static engine's


@dataclass(frozen=True, slots=True)
class Entry:
    """A policy on one draw of a contest.

    Args:
        near: where its capacity probably is, share of the fluid limit.
    """

    contest: Contest
    seed: int
    small: bool
    spec: str
    near: float


def is_ours(entry: Entry) -> bool:
    """Whether the policy is one of this project."""
    return entry.spec.startswith(ADAPTIVE)


def rivals_alone(task: object) -> bool:
    """No policy of this project runs in a search for a rival's constants."""
    return False


def capacity(entry: Entry) -> float:
    """Requests/s; the lowest rate of a search where none holds, so that a ratio is finite."""
    draw = Draw(Task(entry.contest, entry.seed, entry.small))
    race = draw.race(entry.near)
    race.enter(entry.spec)
    return max(race.per_s, draw.course.fluid_limit_per_s / 64)


@dataclass(frozen=True, slots=True)
class Tuning:
    """A rival to be tuned on a pilot's draw.

    Args:
        static: the best static setting there.
    """

    task: Task
    rival: str
    static: Setting


def tune_rival(tuning: Tuning) -> Point:
    """The best setting of a rival, from its published constants and the static engine's limits."""
    draw = Draw(tuning.task)
    race = draw.race(NEAR[STATIC])
    first = first_points(tuning.rival, tuning.static, draw.profile)
    if tuning.task.small:
        return climb_by(around, lambda p: race.enter(p.spec), first[:1], ())
    return climb_by(around, lambda p: race.enter(p.spec), first, STEPS)
