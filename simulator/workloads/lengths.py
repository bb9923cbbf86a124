"""Length distributions, by their quantile functions."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST = 8192  # tokens of a lognormal draw, within a chat model's context
MOST_TOKENS = 10_000_000  # of a prompt or an output; beyond any context
MOST_CV = 100.0  # of lengths


class Marginal(Protocol):
    """A distribution of lengths by its quantile function."""

    def lengths(self, u: Floats) -> Ints:
        """Tokens (at least 1) at the probabilities ``u``."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always ``tokens``."""

    tokens: int

    def lengths(self, u: Floats) -> Ints:
        return np.full(len(u), self.tokens)


@dataclass(frozen=True, slots=True)
class Exponential:
    """The integer exponential (geometric from 1) with this mean, cut at ``cut``."""

    mean: float
    cut: int | None = None

    def lengths(self, u: Floats) -> Ints:
        if self.mean <= 1:
            return np.ones(len(u), dtype=np.int64)
        tokens = np.ceil(np.log1p(-u) / math.log1p(-1 / self.mean)).astype(np.int64)
        return np.clip(tokens, 1, self.cut)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Lognormal with this mean and coefficient of variation, cut at ``cut``: a heavy tail."""

    mean: float
    cv: float
    cut: int = LONGEST

    def lengths(self, u: Floats) -> Ints:
        variance = math.log1p(self.cv**2)
        normal = NormalDist(math.log(self.mean) - variance / 2, math.sqrt(variance))
        tokens = np.exp([normal.inv_cdf(min(max(x, 1e-12), 1 - 1e-12)) for x in u.tolist()])
        return np.clip(np.rint(tokens), 1, self.cut).astype(np.int64)


@dataclass(frozen=True, slots=True)
class SomeLong:
    """``base``, but a share is uniform from ``low`` to ``high`` tokens."""

    base: Marginal
    share: float
    low: int
    high: int

    def lengths(self, u: Floats) -> Ints:
        rest = 1 - self.share
        long = self.low + (self.high - self.low) * (u - rest) / self.share
        whole = np.rint(long).astype(np.int64)
        return np.where(u < rest, self.base.lengths(np.minimum(u / rest, 1 - 1e-12)), whole)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Tokens at some percentages, linear between them."""

    percents: tuple[float, ...]
    tokens: tuple[float, ...]

    def lengths(self, u: Floats) -> Ints:
        tokens = np.interp(u * 100, self.percents, self.tokens)
        return np.maximum(np.rint(tokens), 1).astype(np.int64)
