"""One policy on one seed of a contest, and the search for a rival's best setting."""

from dataclasses import dataclass

from benchmarks.contests.climb import climb
from benchmarks.contests.scenarios import LEAST, STATIC, Contest
from benchmarks.contests.sweeps import Point, around, point_of
from benchmarks.report.seeds import PILOT_SEED

FINE = (0.04,)


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on one seed.

    Args:
        rival: the rival to tune again for this seed, from ``spec``; empty: none.
    """

    contest: Contest
    spec: str
    seed: int = PILOT_SEED
    small: bool = False
    rival: str = ""


def measure(task: Task) -> float:
    """The contest's figure; more is better."""
    trial = task.contest.trial(task.seed, task.small)
    if task.rival and not task.small:
        climb(around, lambda p: trial.enter(p.spec), (point_of(task.rival, task.spec),), FINE)
    else:
        trial.enter(task.spec)
    return max(trial.best, LEAST)


@dataclass(frozen=True, slots=True)
class Search:
    """A rival to be tuned on the pilot seed.

    Args:
        static: the spec of the best static setting; empty: unknown.
    """

    contest: Contest
    rival: str
    small: bool = False
    static: str = ""


def search(task: Search) -> str:
    """The best spec of a rival that the search found."""
    contest = task.contest
    trial = contest.trial(PILOT_SEED, task.small)
    static = point_of(STATIC, task.static) if task.static else None
    first, steps = contest.first(task.rival, static), contest.steps
    if task.small:
        first, steps = first[:2], ()

    def better(point: Point) -> bool:
        return trial.enter(point.spec)

    return climb(around, better, first, steps).spec
