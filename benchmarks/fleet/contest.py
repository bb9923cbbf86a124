"""Each policy on each day at its best constants, which are searched for that very day."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.fleet.course import Result
from benchmarks.fleet.policies import OURS, RAY

Found = Mapping[str, Result]  # by policy: `oracle`, `brimful`, `NAME tuned`

# A rival that takes so many times the hours of the best one with its usual settings is not searched
# further: others bring less than that.
WORTH = 1.3
MOST_BACK = 3  # values that are tried back where another setting does not keep the SLA


@dataclass(frozen=True, slots=True)
class Grid:
    """What is tried of a policy.

    Args:
        key, values: the constant that sets how tight it is, the most generous value first.
        sides: other settings, the usual value of each first.
    """

    key: str
    values: tuple[float, ...]
    sides: Mapping[str, tuple[Any, ...]]


_DELAYS = {"upscale_delay_s": (0,), "downscale_delay_s": (180, 60, 600)}
GRIDS = {
    OURS: Grid(
        "late_frac", (0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03),
        {"upscale_delay_s": (0,), "downscale_delay_s": (60, 180, 600)},
    ),
    "dynamo-throughput": Grid(
        "engine",
        (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1),
        {
            "upscale_delay_s": (0,), "downscale_delay_s": (0, 300, 600),
            "interval_s": (60, 180, 30), "predictor": ("constant", "trend"),
        },
    ),
    RAY: Grid(
        "target_ongoing_requests",
        (1, 2, 3, 4, 6, 8, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 55, 60),
        {**_DELAYS, "upscale_delay_s": (0, 30)},
    ),
    "queue-depth": Grid(
        "target", (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0, 6.0),
        {**_DELAYS, "step_down": (0.1, 0.03)},
    ),
    "wva": Grid(
        "kv_threshold", (0.05, 0.08, 0.11, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.65, 0.8),
        _DELAYS,
    ),
    "dynamo-load": Grid(
        "itl_s", (0.03, 0.035, 0.04, 0.045, 0.05, 0.055, 0.06, 0.07, 0.08, 0.09, 0.1),
        {"upscale_delay_s": (0,), "downscale_delay_s": (0, 120), "sensitivity": (0.8, 0.9, 0.7),
            "interval_s": (5, 30),},
    ),
}  # fmt: skip


def tune(
    name: str, grid: Grid, run: Callable[[str], Result], most_hours: float = math.inf
) -> Result:
    """The cheapest setting that keeps the SLA for enough requests; else the one that keeps most.

    First the tightest value that keeps it, by halving, as hours fall and attainment with them from
    one value to the next; then each other setting in turn, with the values next to it.

    Args:
        most_hours: where the first takes more it is the answer.
    """
    settings = {key: options[0] for key, options in grid.sides.items()}
    tried: list[Result] = []

    def keeps(index: int, settings: Mapping[str, Any]) -> bool:
        tried.append(run(spec_of(name, {grid.key: grid.values[index], **settings})))
        return tried[-1].keeps

    low, high = -1, len(grid.values)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle, settings) else (low, middle)
    if best(tried).keeps and best(tried).replica_hours > most_hours:
        return best(tried)
    for key, options in grid.sides.items():
        for option in options[1:]:
            before, other = best(tried), {**settings, key: option}
            at = max(low, 0)
            if keeps(at, other):
                while at + 1 < len(grid.values) and keeps(at + 1, other):
                    at += 1
            else:
                for _ in range(min(at, MOST_BACK)):
                    # More generous values take more hours still.
                    if before.keeps and tried[-1].replica_hours >= before.replica_hours:
                        break
                    at -= 1
                    if keeps(at, other):
                        break
            if best(tried) != before:
                settings, low = other, at
    return best(tried)


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
