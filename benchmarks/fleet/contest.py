"""Each policy on each day at its best constants, which are searched for that very day."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulator.fleet.course import Result
from simulator.fleet.policies import OURS, RAY

Found = Mapping[str, Result]  # by policy: `oracle`, `brimful`, `NAME tuned`

ROUNDS = 2  # through all other settings, as long as one of them is better than before
HALVINGS = 3  # between the tightest value of the grid that keeps the SLA and the next one


@dataclass(frozen=True, slots=True)
class Grid:
    """What is tried of a policy.

    Args:
        key, values: the constant that sets how tight it is, ascending, the most generous first.
        sides: other settings, the usual value of each first.
    """

    key: str
    values: tuple[float, ...]
    sides: Mapping[str, tuple[Any, ...]]


# Ray Serve's own settings around a policy: every rival may have them.
_RAY = {
    "upscale_delay_s": (0, 10, 30, 60),
    "look_back_period_s": (20, 30, 60, 90),
    "downscaling_factor": (1.0, 0.6, 0.4, 0.2, 0.1),
    "upscaling_factor": (1.0, 0.8, 1.25, 0.6, 1.5),
}
_DELAYS = {**_RAY, "downscale_delay_s": (180, 60, 300, 600, 900)}
_ITL_S = (
    0.03, 0.035, 0.04, 0.045, 0.05, 0.055, 0.06, 0.07, 0.08, 0.09, 0.1, 0.115, 0.13, 0.15, 0.17,
)  # fmt: skip
GRIDS = {
    "dynamo-throughput": Grid(
        "engine",
        (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1),
        {
            "downscale_delay_s": (0, 300, 600, 900), "interval_s": (60, 180, 30, 20), **_RAY,
            "predictor": ("constant", "trend"),
        },
    ),
    RAY: Grid(
        "target_ongoing_requests",
        (
            1, 2, 3, 4, 6, 8, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 55, 60, 66, 73, 80, 88,
            97, 107,
        ),
        _DELAYS,
    ),
    "queue-depth": Grid(
        "target", (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0, 9.0, 13.0),
        {**_DELAYS, "step_down": (0.1, 0.03)},
    ),
    "wva": Grid(
        "kv_threshold", (0.05, 0.08, 0.11, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.65, 0.8),
        _DELAYS,
    ),
    "dynamo-load": Grid(
        "itl_s",
        _ITL_S,
        {
            "downscale_delay_s": (0, 120, 300), "sensitivity": (0.8, 0.9, 0.7, 0.75, 0.95),
            "interval_s": (5, 30), "ttft_s": (1.0, 2.0, 0.5), **_RAY,
        },
    ),
    "dynamo-both": Grid(
        "itl_s",
        _ITL_S,
        {
            "engine": (0.9, 0.95, 1.0, 0.8, 0.85, 0.925, 0.97, 1.1),
            "downscale_delay_s": (0, 120, 300), "throughput_s": (60, 180, 30),
            "sensitivity": (0.8, 0.9, 0.7, 0.95), "interval_s": (5, 30),
            "ttft_s": (1.0, 2.0, 0.5), **_RAY, "predictor": ("constant", "trend"),
        },
    ),
}  # fmt: skip


def tune(
    name: str,
    grid: Grid,
    run: Callable[[str], Result],
    start: str | None = None,
) -> Result:
    """The cheapest setting that keeps the SLA for enough requests; else the one that keeps most.

    Hours fall, and attainment with them, from one value of ``grid.key`` to the next. So first the
    tightest value that keeps the SLA is found by halving; then each other setting is changed in
    turn, with the values next to it, for ``ROUNDS`` rounds or until one brings nothing; then values
    between two of the grid's are tried.

    Args:
        run: what a policy makes of the day; asked again it has to know the answer.
        start: a setting to begin with, which an earlier search or one of another day has found,
            instead of the usual ones.
    """
    climb = _Climb(name, grid, run)
    settings: dict[str, Any] = {key: options[0] for key, options in grid.sides.items()}
    at = climb.tightest(settings) if start is None else climb.begin(start, settings)
    for _ in range(ROUNDS):
        before = climb.best
        for key, options in grid.sides.items():
            for option in options:
                known, other = climb.best, {**settings, key: option}
                beside = at if option == settings[key] else climb.near(max(at, 0), other)
                if climb.best != known:
                    settings, at = other, beside
        if climb.best == before:
            break
    if 0 <= at < len(grid.values) - 1:
        climb.between(at, settings)
    return climb.best


class _Climb:
    """Attributes: best: of all that was tried (``best``)."""

    best: Result

    def __init__(self, name: str, grid: Grid, run: Callable[[str], Result]) -> None:
        self._name, self._grid, self._run = name, grid, run
        self._tried: list[Result] = []

    def begin(self, start: str, settings: dict[str, Any]) -> int:
        """Take the sides of ``start`` into ``settings``; where the tightest value then stands."""
        given = settings_of(start)
        for key, options in self._grid.sides.items():
            text = given.get(key, str(options[0]))
            settings[key] = next((each for each in options if str(each) == text), text)
        values, value = self._grid.values, float(given[self._grid.key])
        at = max((k for k, each in enumerate(values) if each <= value), default=0)
        keeps = self._try(next((each for each in values if each == value), value), settings).keeps
        found = self.near(at, settings)
        return at if keeps and found < 0 else found

    def tightest(self, settings: Mapping[str, Any]) -> int:
        """Where the tightest value stands that keeps the SLA, by halving; -1: none does."""
        low, high = -1, len(self._grid.values)
        while high - low > 1:
            middle = (low + high) // 2
            keeps = self._try(self._grid.values[middle], settings).keeps
            low, high = (middle, high) if keeps else (low, middle)
        return low

    def near(self, at: int, settings: Mapping[str, Any]) -> int:
        """The same from a value on, as far as what is more generous is not dearer than the best."""
        values, last = self._grid.values, self.best
        if self._try(values[at], settings).keeps:
            while at + 1 < len(values) and self._try(values[at + 1], settings).keeps:
                at += 1
            return at
        while at > 0 and not (last.keeps and self._tried[-1].replica_hours >= last.replica_hours):
            at -= 1
            if self._try(values[at], settings).keeps:
                return at
        return -1

    def between(self, at: int, settings: Mapping[str, Any]) -> None:
        """Values between one that keeps the SLA and the next, which does not."""
        low, high = self._grid.values[at], self._grid.values[at + 1]
        for _ in range(HALVINGS):
            middle = float(f"{math.sqrt(low * high):.4g}")
            keeps = self._try(middle, settings).keeps
            low, high = (middle, high) if keeps else (low, middle)

    def _try(self, value: float, settings: Mapping[str, Any]) -> Result:
        self._tried.append(self._run(spec_of(self._name, {self._grid.key: value, **settings})))
        self.best = best(self._tried)
        return self._tried[-1]


def best(tried: Sequence[Result]) -> Result:
    """The cheapest of those that keep the SLA; where none does, the one that keeps most."""
    keeping = [r for r in tried if r.keeps]
    if keeping:
        return min(keeping, key=lambda r: r.replica_hours)
    return max(tried, key=lambda r: r.attainment)


def best_rival(found: Found) -> Result | None:
    """The cheapest rival that keeps the SLA, each at its best; None where none does."""
    rivals = [
        r for name, r in found.items() if name.endswith(" tuned") and r.policy != OURS and r.keeps
    ]
    return min(rivals, key=lambda r: r.replica_hours, default=None)


def spec_of(name: str, settings: Mapping[str, Any]) -> str:
    """As ``--policy`` takes it."""
    return f"{name}:{','.join(f'{key}={value}' for key, value in settings.items())}"


def settings_of(spec: str) -> dict[str, str]:
    """The settings of a spec, as they stand there."""
    return dict(pair.split("=") for pair in spec.partition(":")[2].split(","))
