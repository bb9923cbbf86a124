"""Who may start now, so that neither KV memory nor the step outgrows its limit later on.

The batch is followed h steps ahead for some h, as it would go on if nobody else came. Request i
holds c_i tokens and has said g_i. It is still there with probability q_i = S(g_i + h) / S(g_i), and
then holds c_i + h. So KV memory holds M(h) = sum (c_i + h) q_i tokens with the variance

    V(h) = sum (c_i + h)^2 q_i (1 - q_i)

by chance, request by request. The error of S itself is shared by all requests and adds up:

    E(h) = sum (c_i + h) q_i e_i,  e_i^2 = Var(log S(g_i + h)) - Var(log S(g_i)).

It is what keeps a cold start from betting everything on a guess, and fades as answers are seen to
end. M + theta sqrt(V) + 0.6 E has to fit, for every h; it is never taken for more than all
requests hold together that may still be there.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from controller.models.survival import EDGES, Survival

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POINTS = 28  # of the horizon: memory is found to within 4% of an answer's length
# Deviations of S held back. Held back in full, a cold start fills half of the memory; not at all,
# the first burst of equal lengths loses a quarter of its requests to preemption.
SHARED_DEVIATIONS = 0.6


@functools.lru_cache(maxsize=512)  # ``longest`` is an edge of a bin
def horizons(longest: int) -> Ints:
    """Tokens ahead, from 1 to ``longest``, ascending.

    Memory peaks just before many end together, so the points are dense in units of the lengths
    themselves: ``POINTS`` of them where lengths are alike, and no further apart than a fifth of
    the way where they are spread over decades.
    """
    points, at = [], 1.0
    while at < longest:
        points.append(int(at))
        at += max(1.0, min(longest / POINTS, 4 + at / 5))
    return np.array([*points, longest], dtype=np.int64)


class Outlook:
    """q and e for requests of every age at every horizon: one survival curve, ready to be used.

    Ages are taken to the middle of their bin (``survival.EDGES``), so that a step only picks rows.

    Args:
        oldest: no request has said more tokens than this.

    Attributes:
        ahead: the horizons, shape (h,).
    """

    def __init__(self, survival: Survival, oldest: int) -> None:
        self.longest = survival.longest
        self.ahead = horizons(survival.longest)
        self.ages = _MIDDLES[: age_row(np.array([oldest]))[0] + 1]
        then = self.ages[:, None] + self.ahead
        hazard, error = survival.at(then)
        hazard_now, error_now = survival.at(self.ages)
        q = np.exp(hazard_now[:, None] - hazard)
        e = np.sqrt(np.maximum(error - error_now[:, None], 0.0))
        # No error takes a probability past 1.
        self.q, self.e = q, np.minimum(e, 1 / np.maximum(q, 1e-9) - 1)

    def knows(self, outputs: Ints) -> bool:
        """Whether all of these ages are in it."""
        return bool(age_row(outputs).max(initial=0) < len(self.ages))


_LOWER = np.array(EDGES)
# Row 0 is who has said nothing; row k + 1 who has said as much as bin k holds.
_MIDDLES: Ints = np.array(
    [0, *((a + b - 1) // 2 for a, b in pairwise([*EDGES, EDGES[-1] + 1]))], dtype=np.int64
)


def age_row(outputs: Ints) -> Ints:
    """The row of an ``Outlook`` for requests that have said so many tokens."""
    return np.searchsorted(_LOWER, outputs, side="right")


@dataclass(frozen=True, slots=True)
class LiveRequests:
    """Requests as they are now, one element each, in the order of service.

    Args:
        computed: tokens whose KV is in memory.
        tokens: prompt and output tokens so far: what will be in memory once prefill is done.
        outputs: output tokens so far.
        allowed: how many more it may say.
    """

    computed: Ints
    tokens: Ints
    outputs: Ints
    allowed: Ints

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def held(self) -> int:
        """Tokens that all of them hold once their prefill is done."""
        return int(self.tokens.sum())

    def first(self, n: int) -> "LiveRequests":
        """The first n of them."""
        return LiveRequests(self.computed[:n], self.tokens[:n], self.outputs[:n], self.allowed[:n])


def live_requests(
    computed: Sequence[int], prompts: Sequence[int], outputs: Sequence[int], most: Sequence[int]
) -> LiveRequests:
    """From a list each of computed tokens, prompt tokens, outputs, and the most outputs allowed."""
    said = np.array(outputs, dtype=np.int64)
    return LiveRequests(
        np.array(computed, dtype=np.int64),
        np.array(prompts, dtype=np.int64) + said,
        said,
        np.array(most, dtype=np.int64) - said,
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """Sums over a batch at each horizon, shape (horizons,), or over its first ones, (n, horizons).

    Args:
        alive: E[requests].
        mean: M, tokens.
        chance: V, tokens^2.
        shared: E, tokens.
        worst: what all hold together if none ends before it must, tokens.
    """

    alive: Floats
    mean: Floats
    chance: Floats
    shared: Floats
    worst: Floats

    def plus(self, other: "Forecast") -> "Forecast":
        return Forecast(
            self.alive + other.alive,
            self.mean + other.mean,
            self.chance + other.chance,
            self.shared + other.shared,
            self.worst + other.worst,
        )

    def upper(self, theta: float) -> Floats:
        """M + theta sqrt(V) + 0.6 E, tokens."""
        by_chance = theta * np.sqrt(self.chance)
        bound: Floats = self.mean + by_chance + SHARED_DEVIATIONS * self.shared
        return np.minimum(bound, self.worst)


def forecast(
    requests: LiveRequests,
    outlook: Outlook,
    *,
    block_tokens: int,
    shared_frac: float = 0.0,
    cumulated: bool = False,
) -> Forecast:
    """How a batch goes on by itself.

    Args:
        block_tokens: memory is given out in blocks of this many tokens.
        shared_frac: of what is in memory, the part that another request holds as well.
        cumulated: the sums over the first request, the first two, and so on.
    """
    row = age_row(requests.outputs)
    ahead = outlook.ahead
    may = requests.allowed[:, None] > ahead
    q = outlook.q[row] * may
    # Half of the last block is empty on average.
    holds = ((1 - shared_frac) * requests.tokens + block_tokens / 2)[:, None] + ahead
    weighted = holds * q
    chance = holds * weighted
    chance -= chance * q
    shared = weighted * outlook.e[row]
    holds *= may  # from here on it is the worst case
    parts = (q, weighted, chance, shared, holds)
    if cumulated:
        return Forecast(*(part.cumsum(axis=0) for part in parts))
    return Forecast(*(part.sum(axis=0) for part in parts))


def leading(fits: NDArray[np.bool_]) -> int:
    """How many of a row lead up to the first that does not fit."""
    return len(fits) if fits.all() else int(fits.argmin())
