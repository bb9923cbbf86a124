"""A rival with one setting for many days, as an operator has to choose it: before they come."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from benchmarks.fleet.contest import (
    GRIDS,
    HALVINGS,
    ROUNDS,
    Found,
    Grid,
    best_rival,
    settings_of,
    spec_of,
)
from simulator.fleet.course import Result
from simulator.fleet.policies import OURS, RIVALS

REAL_DAY = "day-"  # their names begin with it
REAL_DAYS, ALL_DAYS = "real days", "all days"
Sides = tuple[tuple[str, str], ...]  # settings beside the key of the grid
Runs = Mapping[str, Callable[[str], Result]]  # by day: what makes or finds a run of a policy


@dataclass(frozen=True, slots=True)
class OneForAll:
    """A setting that keeps the SLA on each of these days.

    Args:
        among: the policies that were searched for one.
    """

    spec: str
    by_day: Mapping[str, Result]
    among: tuple[str, ...] = ()

    @property
    def mean_hours(self) -> float:
        """Replica-hours: the geometric mean, so that each day counts alike."""
        return geometric_mean(one.replica_hours for one in self.by_day.values())

    def hours_against(self, other: Mapping[str, Result]) -> float:
        """Another policy's replica-hours over those of this setting: geometric mean of the days."""
        return geometric_mean(
            other[day].replica_hours / one.replica_hours for day, one in self.by_day.items()
        )


def groups(by_day: Mapping[str, Found]) -> dict[str, list[str]]:
    """Days that one setting is asked for: the real ones, and all of any kind.

    Counted are those on which ours, and some rival tuned for the day, keep the SLA.
    """
    both = [day for day, found in by_day.items() if found[OURS].keeps and best_rival(found)]
    real = [day for day in both if day.startswith(REAL_DAY)]
    found = {REAL_DAYS: real, ALL_DAYS: both if len(both) > len(real) else []}
    return {group: days for group, days in found.items() if len(days) > 1}


def best_for_all(
    by_day: Mapping[str, Found],
    days: Sequence[str],
    runs: Runs,
    start: Callable[[str], str | None] = lambda name: None,
) -> OneForAll | None:
    """The best rival with one setting for these days; None where none keeps the SLA on all.

    A rival that does not keep it on one of them even tuned for that day is left out. One that is
    dearer than another tuned for each day may still be the better one with one setting, so it is
    looked at, but for one whose tuned settings take more than the best single setting so far.

    Args:
        by_day: what each policy made of each day, as ``Bench.all`` has it.
        start: by policy the setting that an earlier search ended with; None: nobody knows.
    """
    tuned: dict[str, dict[str, Result]] = {}
    for name in RIVALS:
        kept = ((day, by_day[day].get(f"{name} tuned")) for day in days)
        tuned[name] = {day: one for day, one in kept if one is not None and one.keeps}
    whole = [name for name in RIVALS if len(tuned[name]) == len(days)]
    # The cheapest first: what it ends with is a limit for all others.
    whole.sort(key=lambda name: geometric_mean(one.replica_hours for one in tuned[name].values()))
    wanted = {day: runs[day] for day in days}
    found: OneForAll | None = None
    for name in whole:
        found = one_for_all(name, GRIDS[name], wanted, tuned[name], found, start(name)) or found
    return None if found is None else replace(found, among=tuple(whole))


def one_for_all(
    name: str,
    grid: Grid,
    runs: Runs,
    tuned: Mapping[str, Result],
    limit: OneForAll | None = None,
    start: str | None = None,
) -> OneForAll | None:
    """The setting that keeps the SLA on each day for the fewest hours; None where none does.

    First with the side settings that were best on some day, then with the best of these, one
    changed at a time, for ``ROUNDS`` rounds or until one brings nothing; with each the tightest
    value of ``grid.key`` is found by halving, as hours and attainment fall from one value to the
    next, between two values of the grid as well.

    Args:
        runs: by day; the days that count.
        tuned: the policy's best of each of these days, which keeps the SLA.
        limit: another policy's; what takes no fewer hours is None.
        start: a setting to begin with, which an earlier search has found.
    """
    search = _Search(name, grid.key, runs, tuned, limit)
    if start is not None:
        text = settings_of(start)[grid.key]
        value = next((each for each in grid.values if each == float(text)), text)
        search.fails(value, _sides(start, grid.key))
    specs = [*([] if start is None else [start]), *(one.spec for one in tuned.values())]
    for sides in dict.fromkeys(_sides(spec, grid.key) for spec in specs):
        _tightest(search, grid, sides)
    if search.best is limit or search.best is None:
        return None
    for _ in range(ROUNDS):
        before = search.best
        for key, options in grid.sides.items():
            for option in options:
                sides = tuple({**dict(search.sides), key: str(option)}.items())
                if sides != search.sides:
                    _tightest(search, grid, sides)
        if search.best is before:
            break
    return search.best


def _sides(spec: str, but: str) -> Sides:
    return tuple((key, text) for key, text in settings_of(spec).items() if key != but)


def _tightest(search: "_Search", grid: Grid, sides: Sides) -> None:
    values = grid.values
    low, high = -1, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if search.fails(values[middle], sides) else (middle, high)
    if not 0 <= low < high < len(values):
        return
    # What fails would take fewer hours than the best, so something between may as well.
    least, most = float(values[low]), float(values[high])
    for _ in range(HALVINGS):
        between = float(f"{math.sqrt(least * most):.4g}")
        fails = search.fails(between, sides)
        least, most = (least, between) if fails else (between, most)


class _Search:
    """Attributes: best, with its ``sides``: so far, if any."""

    def __init__(
        self,
        name: str,
        key: str,
        runs: Runs,
        tuned: Mapping[str, Result],
        limit: OneForAll | None,
    ) -> None:
        self.best = limit
        self.sides: Sides = ()
        self._name, self._key, self._runs, self._days = name, key, runs, list(runs)
        # On no day any setting is taken to stay below the one that was tuned for it.
        self._least_hours = {day: tuned[day].replica_hours for day in runs}

    def fails(self, value: float | str, sides: Sides) -> bool:
        """Whether it does not keep the SLA on some day, so that only more generous values may.

        Else it is the best so far, or takes more hours than that, and only tighter ones are worth
        a look.
        """
        spec = spec_of(self._name, {self._key: value, **dict(sides)})
        made: dict[str, Result] = {}
        hours = dict(self._least_hours)
        for day in self._days:
            if self._too_dear(hours):
                return False
            one = made[day] = self._runs[day](spec)
            hours[day] = one.replica_hours
            if not (one.keeps or self._too_dear(hours)):
                # Where one setting fails the next one may: it is looked at first.
                self._days = [day, *(other for other in self._days if other != day)]
                return True
        if self._too_dear(hours):
            return False
        self.best, self.sides = OneForAll(spec, made), sides
        return False

    def _too_dear(self, hours: Mapping[str, float]) -> bool:
        return self.best is not None and geometric_mean(hours.values()) >= self.best.mean_hours
