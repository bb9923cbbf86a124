"""The batch as it goes on: what it will hold of KV memory, and what a step will read of it.

The batch is followed h steps ahead for some h, as it would go on if no other request came. Request
i holds c_i tokens and has generated g_i. It is still there with probability
q_i = S(g_i + h) / S(g_i), and then holds c_i + h. So KV memory holds M(h) = sum (c_i + h) q_i
tokens with the variance

    V(h) = sum (c_i + h)^2 q_i (1 - q_i)

by chance, request by request. The error of S itself is shared by all requests and adds up:

    E(h) = sum (c_i + h) q_i e_i,  e_i^2 = Var(log S(g_i + h)) - Var(log S(g_i)).

It is what keeps a cold start from betting everything on a guess, and fades as answers are seen to
end. ``price`` decides which requests start. Where preemptions are bounded, M + k sqrt(V) + 0.6 E,
with k of ``preempted_share``, has to fit as well, for every h; it is never taken for more than all
requests hold together that may still be there.

Prefixes that several requests share are in memory once, for as long as one of them is there: c_i is
what request i holds alone, and what is shared comes on top (``Forecast.with_prefixes``). A step
still reads them once for each request.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from controller.models.arrays import Bools, Floats, Ints
from controller.models.requests import Requests
from controller.models.survival import EDGES, Survival, length_bin

POINTS = 64  # of the horizon: the peak is met to within 1.6% of an answer's length
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


class SurvivalTable:
    """q and q e for requests of every age at every horizon: one survival curve, ready to be used.

    Ages are taken to the middle of their bin (``survival.EDGES``), so that a step only picks rows.

    Args:
        oldest: no request has generated more tokens than this.

    Attributes:
        ahead: the horizons, shape (h,).
        q, variable, qe: q, q (1 - q) and q e, shape (ages, h).
    """

    def __init__(self, survival: Survival, oldest: int) -> None:
        self.survival, self.longest = survival, survival.longest
        self.ahead = horizons(survival.longest)
        self.ages = _MIDDLES[: age_row(np.array([oldest]))[0] + 1]
        # In place where it can be: fresh memory takes longer than the sums.
        then = self.ages[:, None] + self.ahead
        alive, error = survival.by_token(int(self.ages[-1]) + self.longest)
        self.q: Floats = alive.take(then, mode="clip")
        self.q /= alive[self.ages][:, None]
        gone = 1.0 - self.q
        self.variable: Floats = self.q * gone
        self.qe: Floats = error.take(then, mode="clip")
        self.qe -= error[self.ages][:, None]
        np.sqrt(np.maximum(self.qe, 0.0, out=self.qe), out=self.qe)
        # No error takes a probability past 1.
        np.minimum(np.multiply(self.q, self.qe, out=self.qe), gone, out=self.qe)

    def sums(self, row: Ints, parts: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
        """Sums over requests of ``parts``, weighted with q, with q (1 - q), and with q e.

        Args:
            row: each request's row, shape (n,).
            parts: p times shape (n,).

        Returns:
            Three times shape (p, horizons).
        """
        by_age = np.array(
            [np.bincount(row, weights=part, minlength=len(self.ages)) for part in parts]
        )
        return by_age @ self.q, by_age @ self.variable, by_age @ self.qe

    def knows(self, oldest: int) -> bool:
        """Whether every age up to this one is in it."""
        return length_bin(oldest) + 1 < len(self.ages) if oldest else True


_LOWER = np.array(EDGES)
# Row 0 is a request without a token; row k + 1 one whose generated tokens fall into bin k.
_MIDDLES: Ints = np.array(
    [0, *((a + b - 1) // 2 for a, b in pairwise([*EDGES, EDGES[-1] + 1]))], dtype=np.int64
)


def age_row(outputs: Ints) -> Ints:
    """The row of a ``SurvivalTable`` for requests with so many generated tokens."""
    return _LOWER.searchsorted(outputs, side="right")


@dataclass(frozen=True, slots=True)
class Forecast:
    """Sums over a batch at each horizon, shape (horizons,), or over its first ones, (n, horizons).

    Args:
        alive: E[requests].
        mean: M, tokens.
        chance: V, tokens^2.
        error: E, tokens.
        worst: what all hold together if none ends before it must, tokens.
        reads: E[KV tokens that a step reads]: M, and shared prefixes once for each request.
    """

    alive: Floats
    mean: Floats
    chance: Floats
    error: Floats
    worst: Floats
    reads: Floats

    def plus(self, other: "Forecast") -> "Forecast":
        return Forecast(
            self.alive + other.alive,
            self.mean + other.mean,
            self.chance + other.chance,
            self.error + other.error,
            self.worst + other.worst,
            self.reads + other.reads,
        )

    def with_prefixes(self, common: float, shared: int) -> "Forecast":
        """With the prefixes they share in memory, as long as one of the requests that do is there.

        Args:
            common: tokens of memory that shared prefixes take.
            shared: the sum of ``Requests.shared`` over the batch: a prefix is shared by
                k = shared / common of them, and still needed with probability 1 - (1 - q)^k.
        """
        gone = 1 - (self.reads - self.mean) / shared
        needed = common * (1 - np.clip(gone, 0, 1) ** (shared / common))
        return replace(self, mean=self.mean + needed, worst=self.worst + common)

    def upper(self, deviations: float) -> Floats:
        """M + k sqrt(V) + 0.6 E, tokens; k: ``deviations``."""
        by_chance = deviations * np.sqrt(self.chance)
        bound: Floats = self.mean + by_chance + SHARED_DEVIATIONS * self.error
        return np.minimum(bound, self.worst)


def forecast(
    requests: Requests, survival_table: SurvivalTable, *, block_tokens: int, frac: float = 1.0
) -> Forecast:
    """How a batch goes on by itself, but for the prefixes it shares.

    Args:
        block_tokens: memory is given out in blocks of this many tokens.
        frac: of a request's tokens, those whose KV is kept: with windows of attention not all are.
    """
    free = requests.allowed > survival_table.longest
    if not free.all():
        # Where ``max_tokens`` may cut them off, requests of one age differ.
        cut_off = _one_by_one(requests.where(~free), survival_table, block_tokens, frac)
        if not free.any():
            return cut_off
        others = requests.where(free)
        return cut_off.plus(forecast(others, survival_table, block_tokens=block_tokens, frac=frac))
    # Requests of one age have q and e in common, so all sums follow from a few per age.
    ahead = survival_table.ahead.astype(float)
    held = holds(requests, block_tokens, frac)
    parts = [np.ones(len(held)), held, held * held]
    if requests.shared is not None and requests.shared.any():
        parts.append(requests.shared.astype(float))
    alive, chance, error = survival_table.sums(age_row(requests.outputs), parts)
    mean = alive[1] + ahead * alive[0]
    return Forecast(
        alive[0],
        mean,
        chance[2] + ahead * (2 * chance[1] + ahead * chance[0]),
        error[1] + ahead * error[0],
        held.sum() + ahead * float(len(held)),
        mean + alive[3] if len(parts) > 3 else mean,
    )


def _one_by_one(
    requests: Requests, survival_table: SurvivalTable, block_tokens: int, frac: float
) -> Forecast:
    # Past the last of them there is nothing to sum.
    h = int(np.searchsorted(survival_table.ahead, requests.allowed.max()))
    sums = np.zeros((6, len(survival_table.ahead)))
    held, q, weighted, uncertain = _terms(requests, survival_table, block_tokens, frac, h)
    columns = "ij,ij->j"
    sums[0, :h] = q.sum(axis=0)
    sums[1, :h] = weighted.sum(axis=0)
    sums[2, :h] = np.einsum(columns, held, weighted) - np.einsum(columns, weighted, weighted)
    sums[3, :h] = uncertain.sum(axis=0)
    sums[4, :h] = held.sum(axis=0)
    sums[5, :h] = sums[1, :h] if requests.shared is None else sums[1, :h] + requests.shared @ q
    return Forecast(*sums)


def forecast_leading(
    requests: Requests, survival_table: SurvivalTable, *, block_tokens: int, frac: float = 1.0
) -> Forecast:
    """``forecast`` of the first request, the first two, and so on: shapes (n, horizons)."""
    held, q, weighted, uncertain = _terms(
        requests, survival_table, block_tokens, frac, len(survival_table.ahead)
    )
    shared = requests.shared
    shared_reads = None if shared is None or not shared.any() else shared[:, None] * q
    chance = held - weighted
    chance *= weighted
    for part in (q, weighted, chance, uncertain, held):
        part.cumsum(axis=0, out=part)
    reads = weighted if shared_reads is None else weighted + shared_reads.cumsum(axis=0)
    return Forecast(q, weighted, chance, uncertain, held, reads)


def holds(requests: Requests, block_tokens: int, frac: float) -> Floats:
    """Tokens of memory that each takes alone.

    With a whole block for the last one, of which half is empty on average: equal requests that
    started together come to the end of their blocks together.
    """
    shared = requests.shared
    alone = requests.tokens if shared is None else requests.tokens - shared
    return np.asarray(frac * alone + block_tokens, dtype=float)


def _terms(
    requests: Requests, survival_table: SurvivalTable, block_tokens: int, frac: float, h: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """KV held by each request at the first h horizons, q, and the KV times q and times q e; each
    of shape (n, h)."""
    row, ahead = age_row(requests.outputs), survival_table.ahead[:h]
    may = requests.allowed[:, None] > ahead
    held = holds(requests, block_tokens, frac)[:, None] + ahead
    held *= may
    q = survival_table.q[row, :h]
    q *= may
    uncertain = survival_table.qe[row, :h]
    uncertain *= held
    return held, q, held * q, uncertain


def leading(fits: Bools) -> int:
    """How many of a row lead up to the first that does not fit."""
    return len(fits) if fits.all() else int(fits.argmin())
