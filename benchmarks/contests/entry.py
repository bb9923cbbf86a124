"""A policy on one draw of a contest, and rivals tuned on a pilot's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.contests.catalog import Contest
from benchmarks.contests.contest import ADAPTIVE, LEFT_S, NEAR, STATIC, Draw, Task
from benchmarks.contests.sweeps import Point, around, first_points
from benchmarks.contests.tuning import STEPS as STATIC_STEPS
from benchmarks.contests.tuning import Setting, climb, climb_by

STEPS = (0.12,)  # of a rival's search: as coarse as the first round of the static engine's
# A setting made for another workload may do better than the one that a search found for this one:
# by how much more than that, share, it is taken to do at best.
MORE = 0.1


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


def _draw(task: Task) -> Draw:
    """Some rivals do not serve in the order of arrival, and may leave prompts for good."""
    return Draw(replace(task, max_left_s=LEFT_S))


def capacity(entry: Entry) -> float:
    """Requests/s; the lowest rate of a search where none holds, so that a ratio is finite."""
    draw = _draw(Task(entry.contest, entry.seed, entry.small))
    race = draw.race(entry.near)
    race.enter(entry.spec)
    return max(race.per_s, draw.course.fluid_limit_per_s / 64)


@dataclass(frozen=True, slots=True)
class Static:
    """The best static setting of a pilot's draw.

    Args:
        frac: its capacity, share of the fluid limit.
    """

    setting: Setting
    frac: float


def tune_static(task: Task) -> Static:
    """The best static setting of this draw, from the line on, and how far it comes."""
    draw = _draw(task)
    race = draw.race(NEAR[STATIC])
    steps = () if task.small else STATIC_STEPS
    setting = climb(lambda s: race.enter(s.of(STATIC)), draw.starts(), steps)
    return Static(setting, draw.frac(race.per_s))


@dataclass(frozen=True, slots=True)
class Tuning:
    """A rival to be tuned on a pilot's draw.

    Args:
        static: the best static setting there; a rival in its engine comes about as far.
    """

    task: Task
    rival: str
    static: Static


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best setting of a rival that was found.

    Args:
        frac: its capacity on the pilot's draw, share of the fluid limit.
    """

    point: Point
    frac: float


def tune_rival(tuning: Tuning) -> Tuned:
    """The best setting of a rival, from its published constants and the static engine's limits."""
    draw = _draw(tuning.task)
    race = draw.race(tuning.static.frac)
    first = first_points(tuning.rival, tuning.static.setting, draw.profile)
    first, steps = (first[:1], ()) if tuning.task.small else (first, STEPS)
    best = climb_by(around, lambda p: race.enter(p.spec), first, steps)
    return Tuned(best, draw.frac(race.per_s))


@dataclass(frozen=True, slots=True)
class Choice:
    """One setting of a rival to be chosen for some contests.

    Args:
        points: of which one is chosen.
        tuned: by contest, what the setting tuned for it reached.
    """

    contests: tuple[Contest, ...]
    small: bool
    points: tuple[Point, ...]
    tuned: tuple[Tuned, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen.

    Args:
        fracs: by contest, its capacity on the pilot's draw, share of the fluid limit.
    """

    point: Point
    fracs: tuple[float, ...]


def choose(choice: Choice) -> Chosen:
    """The setting with the best geometric mean of the capacities on the pilot's draws.

    A setting is left as soon as it would not be the best any more if it did ``MORE`` better, in the
    contests that are left, than what was tuned for them. One that does better still is missed.
    """
    draws = [_draw(Task(contest, small=choice.small)) for contest in choice.contests]
    # A long run is looked at last, and mostly at a single rate.
    order = sorted(range(len(draws)), key=lambda k: draws[k].course.run_s)
    most = [math.log(tuned.frac * (1 + MORE)) for tuned in choice.tuned]
    best, best_sum = choice.points[0], -math.inf
    best_fracs = [0.0] * len(draws)
    for point in choice.points:
        fracs = [0.0] * len(draws)
        for place, k in enumerate(order):
            so_far = sum(math.log(fracs[j]) for j in order[:place])
            to_come = sum(most[j] for j in order[place + 1 :])
            least = math.exp(best_sum - so_far - to_come)
            fracs[k] = _reached(draws[k], point, choice.tuned[k].frac, least)
            if not fracs[k]:
                break
        else:
            best, best_sum = point, sum(map(math.log, fracs))
            best_fracs = fracs
    return Chosen(best, tuple(best_fracs))


def _reached(draw: Draw, point: Point, near: float, least: float) -> float:
    """Its capacity, share of the fluid limit; 0 where that is not more than ``least``."""
    race = draw.race(near)
    race.per_s = least * draw.course.fluid_limit_per_s
    race.enter(point.spec)
    if race.spec:
        return draw.frac(race.per_s)
    return 0.0 if least else draw.frac(0.0)


def raced(fracs: Sequence[float], share: float) -> list[bool]:
    """Whether each is worth a race: it reached this share of the best on the pilot's draw."""
    return [frac >= share * max(fracs) for frac in fracs]
