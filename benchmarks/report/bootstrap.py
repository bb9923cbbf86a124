"""How sure a figure is, over seeds, each with all its policies, so ratios stay paired.

A bootstrap of a few seeds can only go from the worst to the best of them: it is no 95% of anything.
So up to ``FEW`` seeds their lowest and highest figure stand, and are named so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

DRAWS = 2000
FEW = 5  # seeds, and fewer: no bootstrap

Statistic = Callable[[Sequence[int]], float]
Interval = Literal["one run", "min to max", "95%"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over all seeds, and how far it goes.

    Args:
        low, high: the ends of the interval; equal to the value where there is one run.
        interval: what it is: of the figures of each seed alone the lowest and the highest, or what
            95% of the bootstrap's resamples fall into.
        runs: how many seeds there are.
    """

    value: float
    low: float
    high: float
    interval: Interval = "one run"
    runs: int = 1


def estimate(seeds: int, statistic: Statistic) -> Estimate:
    """The statistic of all seeds with its interval.

    Args:
        seeds: how many there are.
        statistic: the figure, from the numbers (0 to seeds - 1) of the seeds that count.
    """
    value = statistic(range(seeds))
    if seeds == 1:
        return Estimate(value, value, value)
    if seeds <= FEW:
        alone = [statistic([k]) for k in range(seeds)]
        return Estimate(value, min(alone), max(alone), "min to max", seeds)
    rng = np.random.default_rng(0)
    found = [statistic(rng.integers(seeds, size=seeds).tolist()) for _ in range(DRAWS)]
    low, high = np.percentile(found, (2.5, 97.5)).tolist()
    return Estimate(value, low, high, "95%", seeds)


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one value per seed."""
    return estimate(len(values), lambda drawn: sum(values[k] for k in drawn) / len(drawn))


def geometric_mean(values: Sequence[Sequence[float]]) -> Estimate:
    """The geometric mean of positive ratios, ``values[case][seed]``: every case counts the same.

    A case with one value has nothing random in it: it is the same with every seed.
    """
    seeds = max(map(len, values))
    logs = np.array(
        [np.broadcast_to(np.log(np.array(case, dtype=float)), seeds) for case in values]
    )
    return estimate(seeds, lambda drawn: float(np.exp(logs[:, list(drawn)].mean())))
