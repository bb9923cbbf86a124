"""How many requests may run: by the SLA, and by KV memory.

Both forecast the batch with k more requests that start now, and take the largest k that fits. The
cap is for all requests that may come, not for the ones waiting now.
"""

import numpy as np

from controller.law.forecast import Ahead
from controller.models.arrays import Floats
from controller.models.step_time import StepModel
from controller.records import Reserve

TINY_S, TINY_TOKENS = 1e-12, 1e-6  # a newcomer that costs less at some h has ended by then
SHARED_DEVIATIONS = 0.6  # deviations of S; with a whole one, a cold start fills half of memory


def by_latency(model: StepModel, running: Ahead, newcomer: Ahead, limit_s: float) -> float:
    """The largest k for which steps of decodes alone stay within ``limit_s`` at every h.

    A step reads M + 0.6 E tokens.

    Args:
        newcomer: forecast of one more request.
    """
    each_s = model.c1 * newcomer.alive + model.c2 * _held(newcomer)
    left_s = limit_s - model.c0 - model.c1 * running.alive - model.c2 * _held(running)
    counts = each_s > TINY_S
    return float(np.min(left_s[counts] / each_s[counts], initial=np.inf))


def by_memory(running: Ahead, newcomer: Ahead, tokens: float, most: int) -> float:
    """The largest k, at most ``most``, for which M + 0.6 E stays within ``tokens`` at every h."""
    left, each = tokens - _held(running), _held(newcomer)
    counts = each > TINY_TOKENS
    return min(float(np.min(left[counts] / each[counts], initial=np.inf)), float(most))


def reserve(
    running: Ahead,
    newcomer: Ahead,
    count: int,
    held: float,
    prompt: float,
    k: float,
) -> Reserve:
    """KV tokens by which running requests still grow, as a linear function of their number.

    The line goes through two points: the ``count`` requests that run now and hold ``held`` tokens,
    and these with max(k, 1) more that bring ``prompt`` tokens each.
    """
    more = max(k, 1.0)
    now = float(_held(running).max(initial=held)) - held
    then = float((_held(running) + more * _held(newcomer)).max(initial=held))
    then -= held + more * prompt
    each = max((then - now) / more, 0.0)
    return Reserve(now - each * count, each)


def _held(ahead: Ahead) -> Floats:
    """M + 0.6 E."""
    held: Floats = ahead.mean + SHARED_DEVIATIONS * ahead.error
    return held
