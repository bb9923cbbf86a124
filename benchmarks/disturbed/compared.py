"""A row's static setting beside ``adaptive``, over all seeds: the figures of ``make disturbed``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.contests.tuning import Setting
from benchmarks.disturbed.bound import Bound, MeanSteps, ttft_bound
from benchmarks.disturbed.replays import Draw, Figures
from benchmarks.disturbed.rows import Row
from benchmarks.report.rows import shown

Read = Callable[[Figures], float]


@dataclass(frozen=True, slots=True)
class Side:
    """A policy on a row, one replay for each seed."""

    runs: tuple[Figures, ...]

    def mean(self, read: Read) -> float:
        """A figure over the seeds."""
        return float(np.mean([read(one) for one in self.runs]))

    @property
    def j(self) -> float:
        """Geometric mean."""
        return geometric([one.j for one in self.runs])

    @property
    def ttft_s(self) -> float:
        """Mean."""
        return self.mean(lambda one: one.ttft_s)

    @property
    def stalls(self) -> int:
        """All seeds together."""
        return sum(one.stalls for one in self.runs)

    @property
    def longest_ms(self) -> float:
        """The value of every seed."""
        return max(one.longest_ms for one in self.runs)


@dataclass(frozen=True, slots=True)
class Compared:
    """A row.

    Args:
        bounds: one for each seed.
    """

    row: Row
    setting: Setting
    static: Side
    adaptive: Side
    bounds: tuple[Bound, ...]

    def over(self, read: Read) -> float:
        """A figure of ``adaptive`` over the static engine's: geometric mean of the seeds."""
        pairs = zip(self.adaptive.runs, self.static.runs, strict=True)
        return geometric([read(ours) / max(read(theirs), 1e-9) for ours, theirs in pairs])

    @property
    def j_over_static(self) -> float:
        return self.over(lambda one: one.j)

    @property
    def ttft_bound_s(self) -> float:
        """Mean over the seeds."""
        return float(np.mean([bound.ttft_s for bound in self.bounds]))

    def below_bound(self, allowed: float) -> list[str]:
        """What has a lower mean TTFT than the bound, with no more late tokens than allowed."""
        return [
            f"{name} on {self.row.id}"
            for name, side in (("static", self.static), ("adaptive", self.adaptive))
            for one, bound in zip(side.runs, self.bounds, strict=True)
            if one.late_share <= allowed and one.ttft_s < bound.ttft_s
        ]

    def to_json(self) -> dict[str, Any]:
        """As one of the rows of the last line."""
        figures = {
            "j_over_static": self.j_over_static,
            "tokens_over_static": self.over(lambda one: one.tokens_per_s),
            "p999_over_static": self.over(lambda one: one.p999_ms),
            "ttft_over_static": self.over(lambda one: one.ttft_s),
            "ttft_bound_s": self.ttft_bound_s,
        }
        return {
            "id": self.row.id,
            **{name: float(shown(value)) for name, value in figures.items()},
            "stalls": self.adaptive.stalls,
            "stalls_static": self.static.stalls,
        }


def geometric(values: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def bounds_of(row: Row, seeds: Sequence[int]) -> tuple[Bound, ...]:
    """The bound of a row's mean TTFT, for the requests of each seed."""
    draw = Draw(row)
    steps = MeanSteps(draw.profile, row.disturbed.disturbances)
    return tuple(
        ttft_bound(
            steps,
            draw.requests(seed),
            draw.stats,
            draw.rate_per_s,
            draw.itl_s,
            1 - draw.sla.percentile / 100,
        )
        for seed in seeds
    )


def overall(rows: Sequence[Compared]) -> dict[str, Any]:
    """The geometric mean and the worst of all J ratios; the last of the rows."""
    worst = max(rows, key=lambda one: one.j_over_static)
    return {
        "id": "all",
        "j_over_static": float(shown(geometric([one.j_over_static for one in rows]))),
        "worst_j_over_static": float(shown(worst.j_over_static)),
        "worst": worst.row.id,
    }
