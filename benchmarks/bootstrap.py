"""How sure a figure is: bootstrap over seeds, each with all its policies, so ratios stay paired."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 2000  # where the seeds are too many to try every way of drawing them
EVERY = 5  # up to so many are: 5^5 = 3125 ways

Statistic = Callable[[Sequence[int]], float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over all seeds, and the interval that 95% of the resamples fall into."""

    value: float
    low: float
    high: float


def estimate(seeds: int, statistic: Statistic) -> Estimate:
    """The statistic of all seeds, and of as many drawn with replacement, over and over.

    Args:
        seeds: how many there are.
        statistic: the figure, from the numbers (0 to seeds - 1) of the seeds that count.
    """
    found = [statistic(drawn) for drawn in _resamples(seeds)]
    low, high = np.percentile(found, (2.5, 97.5)).tolist()
    return Estimate(statistic(range(seeds)), low, high)


def _resamples(seeds: int) -> Iterator[Sequence[int]]:
    if seeds <= EVERY:
        yield from itertools.product(range(seeds), repeat=seeds)
        return
    rng = np.random.default_rng(0)
    for _ in range(DRAWS):
        yield rng.integers(seeds, size=seeds).tolist()


def mean(values: Sequence[float]) -> Estimate:
    """The mean of one value per seed."""
    return estimate(len(values), lambda drawn: sum(values[k] for k in drawn) / len(drawn))


def geometric_mean(values: Sequence[Sequence[float]]) -> Estimate:
    """The geometric mean of positive ratios, ``values[case][seed]``: of all cases and seeds."""
    logs = np.log(np.array(values, dtype=float))
    return estimate(logs.shape[1], lambda drawn: float(np.exp(logs[:, list(drawn)].mean())))


def ratio_of_means(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """Mean over mean, paired by seed; infinite where there is something over nothing, else 0."""

    def ratio(drawn: Sequence[int]) -> float:
        top, bottom = sum(above[k] for k in drawn), sum(below[k] for k in drawn)
        return top / bottom if bottom else (float("inf") if top else 0.0)

    return estimate(len(above), ratio)
