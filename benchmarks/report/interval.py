"""Figures over seeds with their intervals; ratios are paired by seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

Interval = Literal["one run", "min to max"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over all seeds, and its interval.

    Args:
        low, high: the lowest and highest figure of a single seed.
        runs: number of seeds.
    """

    value: float
    low: float
    high: float
    interval: Interval = "one run"
    runs: int = 1


def estimate(seeds: int, statistic: Callable[[Sequence[int]], float]) -> Estimate:
    """The statistic of all seeds with its interval.

    Args:
        seeds: number of seeds.
        statistic: the figure over these seeds, by index.
    """
    value = statistic(range(seeds))
    if seeds == 1:
        return Estimate(value, value, value)
    alone = [statistic([k]) for k in range(seeds)]
    return Estimate(value, min(alone), max(alone), "min to max", seeds)


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one value per seed."""
    return estimate(len(values), lambda drawn: sum(values[k] for k in drawn) / len(drawn))


def median_of(values: Sequence[float]) -> Estimate:
    """The median of one value per seed."""
    return estimate(len(values), lambda drawn: median(values[k] for k in drawn))


def geometric_mean(values: Sequence[Sequence[float]]) -> Estimate:
    """The geometric mean of positive ratios, ``values[case][seed]``: equal weights.

    A case with one value is equal for all seeds.
    """
    seeds = max(map(len, values))
    logs = np.array(
        [np.broadcast_to(np.log(np.array(case, dtype=float)), seeds) for case in values]
    )
    return estimate(seeds, lambda drawn: float(np.exp(logs[:, list(drawn)].mean())))
