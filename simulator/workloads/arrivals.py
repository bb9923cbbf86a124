"""Arrival times: Gamma gaps with a chosen burstiness, or as recorded."""

import numpy as np

from simulator.workloads.lengths import Floats


def unit_arrivals(n: int, gap_cv: float, rng: np.random.Generator) -> Floats:
    """Times of n arrivals at a mean rate of 1, the first after one gap.

    Gaps are Gamma with mean 1 and coefficient of variation ``gap_cv`` (shape 1/CV^2): 1 is
    Poisson, 0 a metronome. They are scaled to a mean of exactly 1, so that a short run has exactly
    the given rate.
    """
    if gap_cv == 0:
        return np.arange(1, n + 1, dtype=float)
    shape = 1 / gap_cv**2
    times: Floats = np.cumsum(rng.gamma(shape, 1 / shape, n))
    if not times[-1]:  # bursts so rare that all of these come at once
        return np.full(n, float(n))
    return times * (n / times[-1])


def recorded_units(arrivals_s: Floats, n: int) -> Floats | None:
    """A recorded pattern at a mean rate of 1, repeated up to n; None if its span is 0."""
    count, span_s = len(arrivals_s), arrivals_s[-1] - arrivals_s[0]
    if not span_s:
        return None
    # The gap between two rounds is the mean gap.
    once = 1 + (arrivals_s - arrivals_s[0]) / span_s * (count - 1)
    rounds = -(-n // count)
    return np.concatenate([once + k * count for k in range(rounds)])[:n]
