"""How long a request that has said g tokens goes on: survival of output lengths, with its error.

The estimate is Kaplan and Meier's (1958) with the requests that still run as censored ones: whoever
has said g tokens has outlived every length below. Counting the finished alone would favour short
answers whenever the batch is young, which is when it matters. Its variance is Greenwood's (1926).
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST = 1 << 17  # tokens; longer answers count as this long
GROWTH = 1.08  # a bin is 8% wide where it is wider than one token
RING = 500  # finished answers remembered: an error of 4% of the batch, and news of a shift in time
# Before anything is known: half of all answers are longer than this (the median of the Azure
# conversation trace is 129), and whoever got to x tokens will with probability 1/2 get to
# 2 x + TYPICAL (a Pareto law: what lasts, lasts).
TYPICAL = 128.0
GONE = 0.02  # "nearly all have ended": further ahead nothing is asked
PRIOR_REQUESTS = 2.0  # what that belief weighs, in observed requests


def _edges() -> tuple[int, ...]:
    edges = [1]
    while edges[-1] < LONGEST:
        edges.append(max(edges[-1] + 1, round(edges[-1] * GROWTH)))
    return tuple(edges)


EDGES = _edges()
"""Bin k holds the lengths from EDGES[k] to EDGES[k + 1] - 1; the last bin all from its edge on."""
BINS = len(EDGES)


def bin_of(tokens: int) -> int:
    """The bin that counts an output of ``tokens`` (at least 1)."""
    return bisect_right(EDGES, tokens) - 1 if tokens > 1 else 0


_EDGES = np.array(EDGES)
# S(x) = P(output > x) is known at x = edge - 1, where a bin begins.
_AT = np.array([*(edge - 1 for edge in EDGES), 2 * LONGEST], dtype=float)
_PRIOR = np.diff(np.log1p(_AT / TYPICAL))  # its cumulated hazard over each bin


class OutputCounts:
    """Counts per bin of the last ``size`` finished requests' output lengths."""

    def __init__(self, size: int = RING) -> None:
        self._size = size
        self._bins: deque[int] = deque()
        self.counts = [0] * BINS

    def __len__(self) -> int:
        return len(self._bins)

    def add(self, output_tokens: int) -> None:
        index = bin_of(output_tokens)
        self._bins.append(index)
        self.counts[index] += 1
        if len(self._bins) > self._size:
            self.counts[self._bins.popleft()] -= 1

    def keep_last(self, n: int) -> None:
        """Forget all but the newest n."""
        while len(self._bins) > n:
            self.counts[self._bins.popleft()] -= 1


class ShiftAlarm:
    """Says when answers have changed so much that the older ones mislead.

    A length drawn from S has a rank 1 - S(length) uniform on (0, 1). The mean of the last
    ``WATCHED`` ranks has a deviation of 0.29 / sqrt(WATCHED); ``ALARM`` is five of them.
    """

    WATCHED = 32
    ALARM = 0.25

    def __init__(self) -> None:
        self._ranks: deque[float] = deque(maxlen=self.WATCHED)

    def add(self, rank: float) -> bool:
        """Take one finished request's rank, the middle of its bin; True is the alarm."""
        self._ranks.append(rank)
        full = len(self._ranks) == self.WATCHED
        if full and abs(sum(self._ranks) / self.WATCHED - 0.5) > self.ALARM:
            self._ranks.clear()
            return True
        return False


class Survival:
    """S(x) = P(output > x) and the variance of its logarithm.

    Args:
        finished: per bin, how many requests ended there (``BINS`` numbers, fractions allowed).
        running: output tokens so far of those that go on, shape (n,).

    Attributes:
        longest: the tokens that only ``GONE`` of all answers reach.
    """

    def __init__(
        self, finished: Sequence[float] | Floats, running: Sequence[int] | Ints = ()
    ) -> None:
        ended = np.asarray(finished, dtype=float)
        outlived: Floats = np.zeros(BINS)
        if len(running):
            # Alive after g tokens: at risk in, and past, every bin that ends at g or before.
            passed = np.searchsorted(_EDGES, np.asarray(running) + 1, side="right") - 1
            counted = np.bincount(passed, minlength=BINS)[:BINS].astype(float)
            outlived = counted[::-1].cumsum()[::-1] - counted
        at_risk = ended[::-1].cumsum()[::-1] + outlived
        believed = 1 - np.exp(-_PRIOR)
        share = (ended + PRIOR_REQUESTS * believed) / (at_risk + PRIOR_REQUESTS)
        # One more survivor than seen, or a bin in which all ended would be the end of the world.
        share = np.minimum(share, 1 - 0.5 / (at_risk + PRIOR_REQUESTS))
        self._hazard = np.concatenate([[0.0], -np.log1p(-share).cumsum()])
        error = share / ((at_risk + PRIOR_REQUESTS) * (1 - share))
        self._error = np.concatenate([[0.0], error.cumsum()])

        gone = int(np.searchsorted(self._hazard, -math.log(GONE)))
        self.longest = max(int(_AT[min(gone, BINS)]), 1)

    def at(self, tokens: Ints) -> tuple[Floats, Floats]:
        """-log S and Var(log S) at these numbers of tokens, any shape."""
        top = int(tokens.max(initial=0)) + 1
        if top >= tokens.size:
            return np.interp(tokens, _AT, self._hazard), np.interp(tokens, _AT, self._error)
        # Many answers to few questions: each whole number once.
        every = np.arange(top)
        hazard, error = np.interp(every, _AT, self._hazard), np.interp(every, _AT, self._error)
        return hazard[tokens], error[tokens]

    def rank(self, output_tokens: int) -> float:
        """P(output < ``output_tokens``), to the middle of its bin."""
        index = bin_of(output_tokens)
        at = self._hazard[index], self._hazard[index + 1]
        return 1 - sum(math.exp(-x) for x in at) / 2

    def survival(self, tokens: int) -> float:
        """P(output > tokens)."""
        return math.exp(-float(np.interp(tokens, _AT, self._hazard)))

    def means(self) -> tuple[float, float]:
        """E[output], and the mean age of an answer that goes on, tokens; to ``longest``.

        The second is E[output^2] / (2 E[output]): long answers are met more often.
        """
        last = int(np.searchsorted(_AT, self.longest)) + 1
        s, at = np.exp(-self._hazard[:last]), _AT[:last]
        area = (s[1:] + s[:-1]) / 2 * np.diff(at)
        total = float(area.sum())
        return total, float(area @ (at[1:] + at[:-1])) / 2 / total
