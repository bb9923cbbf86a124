"""One policy on one draw of a scenario, and the search for a rival's best setting."""

from dataclasses import dataclass

from benchmarks.contests.climb import climb
from benchmarks.contests.scenarios import LEAST, STATIC, Scenario
from benchmarks.contests.sweeps import Point, around, point_of
from benchmarks.report.seeds import PILOT_SEED

FINE = (0.04,)


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on one draw.

    Args:
        rival: whose spec it is, if it is tuned once more for this very draw.
    """

    scenario: Scenario
    spec: str
    seed: int = PILOT_SEED
    small: bool = False
    rival: str = ""


def measure(task: Task) -> float:
    """The scenario's figure; more is better."""
    trial = task.scenario.trial(task.seed, task.small)
    if task.rival and not task.small:
        climb(around, lambda p: trial.enter(p.spec), (point_of(task.rival, task.spec),), FINE)
    else:
        trial.enter(task.spec)
    return max(trial.best, LEAST)


@dataclass(frozen=True, slots=True)
class Search:
    """A rival to be tuned on the pilot's draw.

    Args:
        static: the spec of the best static setting there, where it is known.
    """

    scenario: Scenario
    rival: str
    small: bool = False
    static: str = ""


def search(task: Search) -> str:
    """The best spec of a rival that was found."""
    scenario = task.scenario
    trial = scenario.trial(PILOT_SEED, task.small)
    static = point_of(STATIC, task.static) if task.static else None
    first, steps = scenario.first(task.rival, static), scenario.steps
    if task.small:
        first, steps = first[:2], ()

    def better(point: Point) -> bool:
        return trial.enter(point.spec)

    return climb(around, better, first, steps).spec
