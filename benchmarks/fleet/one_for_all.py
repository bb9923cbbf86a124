"""A rival with one setting for many days, as an operator has to choose it: before they come."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks.fleet.contest import GRIDS, Found, Grid, best_rival, spec_of
from benchmarks.fleet.course import Result
from benchmarks.fleet.policies import OURS, RIVALS

REAL_DAY = "day-"  # their names begin with it
Runs = Mapping[str, Callable[[str], Result]]  # by day: what makes or finds a run of a policy


@dataclass(frozen=True, slots=True)
class OneForAll:
    """A setting that keeps the SLA on each of these days."""

    spec: str
    by_day: Mapping[str, Result]

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
    found = {"real days": real, "all days": both if len(both) > len(real) else []}
    return {group: days for group, days in found.items() if len(days) > 1}


def best_for_all(by_day: Mapping[str, Found], days: Sequence[str], runs: Runs) -> OneForAll | None:
    """The best rival with one setting for these days; None where none keeps the SLA on all.

    A rival that does not keep it on one of them even tuned for that day is left out.

    Args:
        by_day: what each policy made of each day, as ``Bench.all`` has it.
    """
    found: list[OneForAll] = []
    for name in RIVALS:
        tuned = {day: by_day[day].get(f"{name} tuned") for day in days}
        kept = {day: one for day, one in tuned.items() if one is not None and one.keeps}
        if len(kept) == len(days):
            setting = one_for_all(name, GRIDS[name], {day: runs[day] for day in days}, kept)
            found += [setting] if setting else []
    return min(found, key=lambda one: one.mean_hours, default=None)


def one_for_all(name: str, grid: Grid, runs: Runs, tuned: Mapping[str, Result]) -> OneForAll | None:
    """The setting that keeps the SLA on each day for the fewest hours; None where none does.

    Tried are the side settings that were best on some day, each with the most generous value of
    ``grid.key`` that was best on a day with them (a tighter one was seen to fail there), and with
    more generous ones until the SLA is kept everywhere.

    Args:
        runs: by day; the days that count.
        tuned: the policy's best of each of these days, which keeps the SLA.
    """
    begins: dict[tuple[tuple[str, str], ...], int] = {}
    texts = [str(value) for value in grid.values]
    for one in tuned.values():
        settings = dict(pair.split("=") for pair in one.spec.partition(":")[2].split(","))
        at = texts.index(settings.pop(grid.key))
        sides = tuple(settings.items())
        begins[sides] = min(at, begins.get(sides, at))
    search = _Search(runs, {day: tuned[day].replica_hours for day in runs})
    for sides, begin in begins.items():
        for at in range(begin, -1, -1):
            if search.ends(spec_of(name, {grid.key: grid.values[at], **dict(sides)})):
                break
    return search.best


class _Search:
    """Args: least_hours: by day, which no setting is taken to stay below."""

    def __init__(self, runs: Runs, least_hours: Mapping[str, float]) -> None:
        self.best: OneForAll | None = None
        self._runs, self._least_hours, self._days = runs, least_hours, list(runs)

    def ends(self, spec: str) -> bool:
        """Whether nothing is to be had from more generous values than this one's.

        It keeps the SLA on each day, and is the best so far, or it takes more hours than that.
        """
        made: dict[str, Result] = {}
        hours = dict(self._least_hours)
        for day in self._days:
            one = made[day] = self._runs[day](spec)
            hours[day] = one.replica_hours
            if self.best and geometric_mean(hours.values()) >= self.best.mean_hours:
                return True
            if not one.keeps:
                # Where one setting fails the next one may: it is looked at first.
                self._days = [day, *(other for other in self._days if other != day)]
                return False
        self.best = OneForAll(spec, made)
        return True
