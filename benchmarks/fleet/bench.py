"""One day's runs, each made once and kept, and every policy's search over them."""

import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tqdm import tqdm

from benchmarks.fleet.contest import GRIDS, WORTH, Found, best, best_rival, tune
from benchmarks.fleet.kept import Kept, code_of
from benchmarks.fleet.page import OURS_SPEC
from benchmarks.fleet.starts import Starts
from controller.errors import ConfigError
from simulator.fleet.course import Course, Result, result
from simulator.fleet.days import Day
from simulator.fleet.policies import ORACLE, OURS
from simulator.fleet.simulate import Ground


class NotKeptError(LookupError):
    """A search asked for a run that nobody made."""


class Bench:
    """One day's runs, each made once.

    Args:
        kept: results of earlier benches.
        makes: whether what was not kept is run.
        starts: where searches begin; None: with the usual settings.
    """

    def __init__(
        self,
        day: Day,
        ground: Ground,
        kept: Kept,
        *,
        makes: bool = True,
        starts: Starts | None = None,
    ) -> None:
        self.day, self._ground, self._kept, self._makes = day, ground, kept, makes
        self._starts = starts
        self._at = f"{day.name} {ground.seed} {ground.startup_s:g}"
        self._course: Course | None = None
        self._bar: tqdm[Any] | None = None

    @property
    def course(self) -> Course:
        if self._course is None:
            self._course = Course(self.day, self._ground)
        return self._course

    def look(self, spec: str) -> Result:
        """What was kept of a policy.

        Raises:
            NotKeptError: nothing.
        """
        kept = self._kept.get(self._at, spec)
        if kept is None:
            raise NotKeptError(spec)
        return kept

    def run(self, spec: str) -> Result:
        """What a policy made of the day, kept or made now.

        Raises:
            NotKeptError: it would have to be made, and this bench makes none.
        """
        with suppress(NotKeptError):
            return self.look(spec)
        if not self._makes:
            raise NotKeptError(spec)
        if self._bar is None:
            self._bar = tqdm(desc=self.day.name, unit=" runs", file=sys.stderr, mininterval=2)
        self._bar.set_postfix_str(spec, refresh=False)
        made = result(self.day, spec, self.course.outcome(spec))
        self._bar.update()
        self._kept.add(self._at, spec, made)
        return made

    def all(self, names: Sequence[str]) -> tuple[dict[str, Result], dict[str, int]]:
        """The oracle, ours with one setting for all days, and each policy at its best here.

        Args:
            names: the policies that are searched; of the others what was kept is shown.

        Returns:
            The results, and of each policy whose search was cut short how many settings were tried.

        Raises:
            ConfigError: the oracle or ours is not kept, and this bench makes none.
        """
        found = self._untuned()
        cut: dict[str, int] = {}
        for name in GRIDS:
            tuned = self._tuned(name, WORTH * _least_hours(found), makes=name in names)
            if tuned is None:
                tried = self._kept.all_of(self._at, name)
                cut[name] = len(tried)
                tuned = best(tried) if tried else None
            if tuned is not None:
                found[f"{name} tuned"] = tuned
        self._close_bar()
        return found, cut

    def without_search(self, names: Sequence[str]) -> dict[str, Result]:
        """The same, but each of these policies is run only at the setting of ``starts``, if any.

        Raises:
            ConfigError: a run is not kept, and this bench makes none.
        """
        found = self._untuned()
        for name in names:
            start = self._starts.of(self.day.name, name) if self._starts else None
            if start is not None:
                try:
                    found[f"{name} tuned"] = self.run(start)
                except NotKeptError:
                    raise ConfigError([self._missing(name)]) from None
        self._close_bar()
        return found

    def _untuned(self) -> dict[str, Result]:
        found: dict[str, Result] = {}
        for name, spec in ((ORACLE, ORACLE), (OURS, OURS_SPEC)):
            try:
                found[name] = self.run(spec)
            except NotKeptError:
                raise ConfigError([self._missing(name)]) from None
        return found

    def _close_bar(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _tuned(self, name: str, most_hours: float, *, makes: bool) -> Result | None:
        """A policy at its best, from where its search begins; None where runs are missing.

        What was kept may be of a search from there, or of one from the usual settings.
        """
        start = self._starts.of(self.day.name, name) if self._starts else None
        run = self.run if makes else self.look
        for begin in dict.fromkeys((start, None)):
            with suppress(NotKeptError):
                return tune(name, GRIDS[name], run, most_hours, begin)
        return None

    def with_later_runs(self, found: Found) -> Found:
        """The same, where a run made since is better than what a search had ended with."""
        runs = {name: self._kept.all_of(self._at, name) for name in GRIDS}
        better = {
            f"{name} tuned": best([found[f"{name} tuned"], *runs[name]])
            for name in GRIDS
            if f"{name} tuned" in found
        }
        return {**found, **better}

    def _missing(self, name: str) -> str:
        return (
            f"{self.day.name}: no run of {name} is kept of this code ({code_of(name)}):"
            f" `make bench-elastic ARGS='--day {self.day.name}'` makes it"
        )


def _least_hours(found: Found) -> float:
    rival = best_rival(found)
    return math.inf if rival is None else rival.replica_hours
