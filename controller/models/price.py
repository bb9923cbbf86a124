"""What a preemption costs and what an empty slot costs: which requests start where memory is short.

The last request to start is the first to be preempted (vLLM takes the end of its running list), so
one more costs no other anything. Until memory overflows it decodes a token in each step and shares
the fixed part c0 of the step with the B others: each such step is worth c0 / B seconds. When
memory overflows it is preempted, and later c3 + c4 c / 2 seconds go into each of the c tokens that
it held, to compute it again; what it generated is kept. With

    r = (c3 + c4 c / 2) B / c0,    the steps of one slot that recomputing a token is worth,
    F(h),             the chance that memory has overflowed h steps from now,
    q(h),             the chance that the request still runs then,
    c + h,            the tokens that it holds then,

it gains G and loses L, in steps of one slot:

    G = 1 + sum_h q(h) (1 - F(h)),    L = r sum_h q(h) (c + h) (F(h) - F(h - 1)),

and starts where G > w L, with a weight w (``weight_of``). The 1 is the token that comes with the
prompt, where that fits. By priority another may be preempted than the last one, which this leaves
out. Where r is small, a full batch that preempts now and then is worth more than one that never
overflows; as r grows, the rule comes close to never overflowing.

F is a first passage: memory that falls on average still crosses its limit as it goes up and down on
the way. With M and V the mean and the variance of its growth by step h and g the room there is,

    F(h) = Phi((M - g) / s) + exp(2 M g / V) Phi((-M - g) / s),    s = sqrt(V):

Brownian motion with drift (Bachelier 1900, Levy 1939).
"""

import math
from itertools import pairwise

import numpy as np

from controller.models.arrays import Bools, Floats, Ints
from controller.models.batch_memory import BatchForecast
from controller.models.lookahead import leading
from controller.models.step_time import StepModel

# The weight of L where many end at one length. Every request counts with a whole block more than
# it fills, so memory overflows somewhat later than forecast. Chosen on the cases of
# ``benchmarks.contests.offline``, other draws and counts of them: from 0.4 to 1.6 it moves
# throughput by less than 1% on average.
IN_WAVES = 0.8
# ... and where lengths are spread. There requests end at any time, and one that does not start now
# starts a little later: G counts steps that it would have had then, too. 8 gives the same.
SPREAD = 4.0
# Of two lengths one in so many is within 3% of the other: 129 exponential ones, 117 of a reasoning
# model's outputs, 40 of the Azure trace's; with two modes of 5 or 10% it is 12 and 25, and these
# still end in waves.
WAVES_UP_TO, SPREAD_FROM = 25, 50
FIRST_FEW = 8  # candidates that are asked together, once the first one has been let in
HIGHEST = 1000.0  # r without a fixed part of the step: an empty slot costs nothing


def recompute_price(model: StepModel, batch: Ints, held: Floats) -> Floats:
    """r = (c3 + c4 c / 2) B / c0: the slot steps that recomputing one token is worth.

    Args:
        batch: B, shape (n,).
        held: c, the tokens of the request, shape (n,): later ones attend to those before.
    """
    if model.c0 <= 0:
        return np.full(batch.shape, HIGHEST)
    token_s = model.c3 + model.c4 * held / 2
    price: Floats = np.minimum(token_s / model.c0 * np.maximum(batch, 1), HIGHEST)
    return price


def upper_tail(x: Floats) -> Floats:
    """P(X > x) of the normal distribution: its density times Mills' ratio."""
    far = np.abs(x)
    tail = _density(far) * _mills(far)
    return np.where(x >= 0, tail, 1 - tail)


def _density(x: Floats) -> Floats:
    density: Floats = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return density


def _mills(x: Floats) -> Floats:
    """P(X > x) over the density at x >= 0: exact at 0 and far out, up to 6% too high between."""
    ratio: Floats = 2 / (x + np.sqrt(x * x + 8 / math.pi))
    return ratio


def first_passage(room: Floats, growth: Floats, variance: Floats) -> Floats:
    """F: the chance that tokens held have grown by ``room`` at some time so far.

    Args:
        room: tokens that are free at the start; without any, they have.
        growth, variance: M and V, of the tokens held since the start.
    """
    s = np.sqrt(np.maximum(variance, 1e-6))
    a, b = (room - growth) / s, (room + growth) / s
    # exp(2 M g / V) = density(a) / density(b), which keeps the product from overflowing ...
    reflected = _density(a) * _mills(np.abs(b))
    # ... and where b < 0, memory falls by more than the room, and the first factor is small.
    fallen = np.exp(np.minimum(2 * growth * room / (s * s), 0.0)) * upper_tail(b)
    chance = upper_tail(a) + np.where(b >= 0, reflected, fallen)
    return np.where(room > 0, np.minimum(chance, 1.0), 1.0)


def weight_of(concentration: float) -> float:
    """w, by the chance that two requests end at one length (``Survival.concentration``)."""
    part = (1 / concentration - WAVES_UP_TO) / (SPREAD_FROM - WAVES_UP_TO)
    return IN_WAVES + (SPREAD - IN_WAVES) * min(max(part, 0.0), 1.0)


def pays(
    fits: Bools,
    overflow: Floats,
    runs: Floats,
    held: Floats,
    ahead: Ints,
    price: Floats,
    weight: float,
) -> Bools:
    """Whether G > w L, for n requests, each with all before it; shape (n,).

    Args:
        fits: whether there is room for its prompt, shape (n,).
        overflow: F at the horizons, shape (n, h); made never to fall.
        runs: q, shape (n, h).
        held: c, the tokens that are computed again, shape (n,).
        ahead: the horizons, ascending, shape (h,).
        price: r, shape (n,).
        weight: w.
    """
    by_then = np.maximum.accumulate(overflow, axis=1)
    gain = fits + (runs * (1 - by_then)) @ _steps(ahead).astype(float)
    now = by_then.copy()
    now[:, 1:] -= by_then[:, :-1]
    loss = price * (runs * now * (held[:, None] + ahead)).sum(axis=1)
    worth: Bools = gain > weight * loss
    return worth


def _steps(ahead: Ints) -> Ints:
    """From each horizon to the next, the first from 0."""
    steps = ahead.copy()
    steps[1:] -= ahead[:-1]
    return steps


def paying(
    batch: BatchForecast,
    kv_tokens: int,
    running: int,
    model: StepModel,
    concentration: float,
    first: int = 0,
) -> int:
    """How many candidates, in order, gain more by starting now than they may lose.

    Args:
        running: how many run already.
        concentration: the chance that two end at one length (``Survival.concentration``).
        first: how many of the first candidates are known to gain more.
    """
    alone, together, held = batch.running, batch.together, batch.holds
    n, ahead = len(held), alone.survival_table.ahead
    # The first one by itself: it often has to wait, and then nothing is asked of the others.
    for start, stop in pairwise(sorted({first, max(first, 1), min(FIRST_FEW, n), n})):
        few = slice(start, stop)
        before = together.alive[start - 1 : stop - 1] if start else alone.base.alive
        alive = together.alive[few] - before
        now = (alone.held + held[:stop].cumsum())[few, None]
        overflow = first_passage(
            kv_tokens - now,
            together.mean[few] + alone.not_running - now,
            together.chance[few],
        )
        overflow[together.worst[few] + alone.not_running <= kv_tokens] = 0.0
        again = batch.recomputed[few]
        price = recompute_price(model, running + np.arange(start, stop), again)
        fits = now[:, 0] < kv_tokens
        each = pays(fits, overflow, alive, again, ahead, price, weight_of(concentration))
        if not each.all():
            return start + leading(each)
    return n
