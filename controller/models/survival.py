"""Survival of output lengths: how long requests go on after g generated tokens, with the error.

For each bin of ages, the share that ends in it: ends over requests that reached it and are decided.
It is Kaplan and Meier's estimate (1958) with late entry: a request counts for the ages at which it
was observed, ended or not. Finished requests alone would favour short answers while the batch is
young, which is when it matters. Its variance is Greenwood's (1926).
"""

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controller.models.arrays import Floats, Ints

LONGEST = 1 << 17  # tokens; longer answers count as this long
GROWTH = 1.03  # bins are 3% wide, or a token: it matters at which token equal lengths end
ENDS_KEPT = (
    500  # finished answers remembered: an error of 4% of the batch, and news of a shift in time
)
GONE = 0.02  # share left when nearly all have ended: no forecast goes further

# Prior for ages that no request was observed at: Lomax's law (1954), whose hazard falls with age,
# of SHAPE 3: a coefficient of variation of 1.7, as heavy a tail as answers are known to have. Its
# scale is learned. At first it is that of answers of TYPICAL tokens, with a deviation of the
# logarithm (SPREAD) of a factor of four. A guess too long costs empty memory until some requests
# have ended, a guess too short costs preemptions until the first answers end.
SHAPE = 3.0
TYPICAL = 512.0
SPREAD = 1.4
PRIOR_REQUESTS = 2.0  # weight of the prior, in observed requests


def _edges() -> tuple[int, ...]:
    edges = [1]
    while edges[-1] < LONGEST:
        edges.append(max(edges[-1] + 1, round(edges[-1] * GROWTH)))
    return tuple(edges)


EDGES = _edges()
"""Bin k holds the lengths from EDGES[k] to EDGES[k + 1] - 1; the last bin all from its edge on."""
BINS = len(EDGES)


def length_bin(tokens: int) -> int:
    """The bin for an output of ``tokens``; 0 counts as 1."""
    return bisect_right(EDGES, tokens) - 1 if tokens > 1 else 0


_EDGES = np.array(EDGES)
# S(x) = P(output > x) is known at x = edge - 1, the begin of a bin.
AGES = np.array([*(edge - 1 for edge in EDGES), 2 * LONGEST], dtype=float)
_SCALES = TYPICAL * 2.0 ** np.arange(-4, 5.5, 0.5)
# For each scale, the cumulated hazard over each bin, and the log share that ends in it.
_LAWS = np.array([SHAPE * np.diff(np.log1p(AGES / (SHAPE * scale))) for scale in _SCALES])
_LOG_SHARES = np.log(-np.expm1(-_LAWS))
_LOG_PRIOR = -((np.log(_SCALES / TYPICAL) / SPREAD) ** 2) / 2


def believed(seen: "Exposure") -> Floats:
    """The prior's hazard over each bin, shape (BINS,): a mean over scales, weighted by the data.

    A scale's weight is its posterior probability: a binomial likelihood per bin.
    """
    likelihood = _LOG_PRIOR + _LOG_SHARES @ seen.ended - _LAWS @ (seen.at_risk - seen.ended)
    weights = np.exp(likelihood - likelihood.max())
    hazard: Floats = weights @ _LAWS / weights.sum()
    return hazard


@dataclass(frozen=True, slots=True)
class Exposure:
    """For each bin, answers that ended in it, and answers that reached it and are decided.

    Args:
        ended, at_risk: shape (BINS,); fractions allowed.
    """

    ended: Floats
    at_risk: Floats

    @classmethod
    def nothing(cls) -> "Exposure":
        return cls(np.zeros(BINS), np.zeros(BINS))

    def plus(self, other: "Exposure", weight: float = 1.0) -> "Exposure":
        return Exposure(self.ended + weight * other.ended, self.at_risk + weight * other.at_risk)

    def times(self, weight: float) -> "Exposure":
        return Exposure(weight * self.ended, weight * self.at_risk)


def outlived(outputs: Ints) -> Floats:
    """How many requests with these generated tokens are past each bin, shape (BINS,)."""
    now = _EDGES.searchsorted(outputs + 1, side="right") - 1
    counted = np.bincount(now, minlength=BINS)[:BINS].astype(float)
    past: Floats = counted[::-1].cumsum()[::-1] - counted
    return past


class LengthHistory:
    """Output lengths as known from requests that run and end.

    A request counts for a bin from the moment that it leaves the bin or ends in it: the hazard's
    occurrences over its exposures. So a running request counts only for what was observed, and not
    for its age before the history began. Counting whole ages would make answers seem a fifth longer
    if 100 run and 500 are remembered.

    Older outcomes fade, by 1/e over ``ENDS_KEPT`` ends.
    """

    def __init__(self) -> None:
        self.seen = Exposure.nothing()
        self._outlived: Floats = np.zeros(BINS)
        # Output tokens since the last update, which may be many steps ago.
        self._finished: deque[int] = deque(maxlen=ENDS_KEPT)
        self._aborted: deque[int] = deque(maxlen=ENDS_KEPT)

    def finished(self, output_tokens: int) -> None:
        """A request ended by itself after ``output_tokens``."""
        self._finished.append(output_tokens)

    def aborted(self, output_tokens: int) -> None:
        """A request was aborted after ``output_tokens``."""
        self._aborted.append(output_tokens)

    def update(self, outputs: Ints) -> None:
        """Count what happened since the last update.

        Args:
            outputs: output tokens so far of the present requests, shape (n,).
        """
        finished = [length_bin(tokens) for tokens in self._finished]
        ended = np.bincount(finished, minlength=BINS).astype(float)
        through = outlived(outputs)
        past = through - self._outlived
        if self._aborted:
            past += outlived(np.array(self._aborted, dtype=np.int64))
        self._outlived = through
        self._finished.clear()
        self._aborted.clear()
        # A request that is absent for one update takes its past along, and brings it back.
        at_risk = np.maximum(ended[::-1].cumsum()[::-1] + past, ended)
        self.seen = self.seen.times(math.exp(-len(finished) / ENDS_KEPT)).plus(
            Exposure(ended, at_risk)
        )


class Survival:
    """S(x) = P(output > x) and the variance of its logarithm.

    Attributes:
        longest: tokens that only the share ``GONE`` of answers reaches.
        share: share of the answers in a bin that end in it, shape (BINS,).
        hazard: -log S at ``AGES``, shape (BINS + 1,).
    """

    def __init__(self, seen: Exposure) -> None:
        at_risk = seen.at_risk + PRIOR_REQUESTS
        self._seen = seen
        share = (seen.ended - PRIOR_REQUESTS * np.expm1(-believed(seen))) / at_risk
        # Cap the hazard below 1, or no request could outlive the longest that was seen.
        self.share: Floats = np.minimum(share, 1 - 0.5 / at_risk)
        self.hazard = np.concatenate([[0.0], -np.log1p(-self.share).cumsum()])
        gone = int(np.searchsorted(self.hazard, -math.log(GONE)))
        self.longest = max(int(AGES[min(gone, BINS)]), 1)

    @cached_property
    def error(self) -> Floats:
        """Var(log S) at ``AGES``, shape (BINS + 1,)."""
        at_risk = self._seen.at_risk + PRIOR_REQUESTS
        error = self.share / (at_risk * (1 - self.share))
        return np.concatenate([[0.0], error.cumsum()])
