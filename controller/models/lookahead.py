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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.models.survival import Survival

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

POINTS = 32  # of the horizon: memory is found to within 3% of an answer's length
# Deviations of S held back. Held back in full, a cold start fills half of the memory; not at all,
# the first burst of equal lengths loses a quarter of its requests to preemption.
SHARED_DEVIATIONS = 0.6


def horizons(survival: Survival) -> Ints:
    """Tokens ahead, to where nearly all have ended, ascending from 1.

    Memory peaks just before many end together, so the points are dense in units of the lengths
    themselves: ``POINTS`` of them where lengths are alike, and no further apart than an eighth of
    the way where they are spread over decades.
    """
    points, at = [], 1.0
    while at < survival.longest:
        points.append(int(at))
        at += max(1.0, min(survival.longest / POINTS, 4 + at / 8))
    return np.array([*points, survival.longest], dtype=np.int64)


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


def live_requests(rows: list[tuple[int, int, int, int]]) -> LiveRequests:
    """From (computed, tokens, outputs, allowed) of each."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return LiveRequests(table[:, 0], table[:, 1], table[:, 2], table[:, 3])


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
    survival: Survival,
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
    ahead = horizons(survival)
    then = requests.outputs[:, None] + ahead
    hazard, error = survival.tables(int(then.max(initial=0)))
    q = np.exp(hazard[requests.outputs][:, None] - hazard[then])
    may = requests.allowed[:, None] > ahead
    q *= may
    # Half of the last block is empty on average.
    holds = ((1 - shared_frac) * requests.tokens + block_tokens / 2)[:, None] + ahead
    e = np.sqrt(np.maximum(error[then] - error[requests.outputs][:, None], 0.0))
    # No error takes a probability past 1.
    e = np.minimum(e, 1 / np.maximum(q, 1e-9) - 1)
    weighted = holds * q
    parts = (q, weighted, holds * weighted * (1 - q), weighted * e, holds * may)
    if cumulated:
        return Forecast(*(part.cumsum(axis=0) for part in parts))
    return Forecast(*(part.sum(axis=0) for part in parts))


def leading(fits: NDArray[np.bool_]) -> int:
    """How many of a row lead up to the first that does not fit."""
    return len(fits) if fits.all() else int(fits.argmin())
