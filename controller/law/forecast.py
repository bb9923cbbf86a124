"""Forecast of a batch: the KV tokens that it will hold, and that a step will read.

The forecast is for h steps ahead if no other request comes. A request that holds c tokens and has
generated g still runs with probability q = S(g + h) / S(g), S(x) = P(output > x); q = 0 once
``max_tokens`` has ended it. If it runs, it holds c + h. The batch holds

    M(h) = sum (c + h) q

tokens on average. The error of S is common to all requests, so errors add up:
E(h) = sum (c + h) q e, e^2 = Var(log S(g + h)) - Var(log S(g)).
"""

import functools
from dataclasses import dataclass

import numpy as np

from controller.models.arrays import Floats, Ints
from controller.models.survival import AGES, Survival

HELD, AGE, LEFT, COUNT = range(4)  # columns of a batch table
POINTS = 64  # of the horizon: the peak is found to 1.6% of an answer's length


@functools.lru_cache(maxsize=512)  # ``longest`` is an edge of a bin
def horizons(longest: int) -> Ints:
    """Tokens ahead, from 1 to ``longest``, ascending.

    Memory peaks just before many requests end together. There are ``POINTS`` points if answers are
    of similar length; if lengths spread over decades, steps between points are a fifth of h.
    """
    points, at = [], 1.0
    while at < longest:
        points.append(int(at))
        at += max(1.0, min(longest / POINTS, 4 + at / 5))
    return np.array([*points, longest], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Ahead:
    """Sums at each horizon, shape (h,).

    Args:
        alive: E[requests].
        mean, error: M and E, tokens.
    """

    alive: Floats
    mean: Floats
    error: Floats


class Forecast:
    """Forecasts by one survival curve.

    Attributes:
        ahead: the horizons, tokens, ascending, shape (h,).
    """

    def __init__(self, survival: Survival) -> None:
        self._survival = survival
        self.ahead = horizons(survival.longest)

    def of(self, table: Floats) -> Ahead:
        """The forecast of a batch that consists of groups of similar requests.

        Args:
            table: of one request of each group the tokens that it holds, has generated and may
                still generate, then the number of requests; shape (groups, 4).
        """
        if not len(table):
            nothing = np.zeros(len(self.ahead))
            return Ahead(nothing, nothing, nothing)
        age, count = table[:, AGE], table[:, COUNT]
        then = age[:, None] + self.ahead
        hazard, error = self._survival.hazard, self._survival.error
        q = np.exp(np.interp(age, AGES, hazard)[:, None] - np.interp(then, AGES, hazard))
        q *= table[:, LEFT, None] > self.ahead
        wrong = np.interp(then, AGES, error) - np.interp(age, AGES, error)[:, None]
        wrong = np.minimum(q * np.sqrt(np.maximum(wrong, 0.0)), 1 - q)
        held = table[:, HELD, None] + self.ahead
        return Ahead(count @ q, count @ (held * q), count @ (held * wrong))
