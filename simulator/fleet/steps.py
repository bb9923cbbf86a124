"""Step times of a fluid replica, and the part of a prompt in a step. Compiled."""

import math

import numpy as np

from simulator.fleet.compiled import compiled
from simulator.fleet.state import Engine

LATE_FRAC = 0.01  # as in the controller, if the SLA leaves prompts no time


@compiled
def _right(values: np.ndarray, at: float) -> int:
    """The index of the knot at the right end of the segment with ``at``; at most the last."""
    if len(values) == 2:  # a line
        return 1
    return min(max(int(np.searchsorted(values, at)), 1), len(values) - 1)


@compiled
def dense_s(engine: Engine, tokens: float) -> float:
    """Seconds of a step of this many tokens, except attention."""
    knots, knot_s = engine.knots, engine.knot_s
    right = _right(knots, tokens)
    t0, t1, s0, s1 = knots[right - 1], knots[right], knot_s[right - 1], knot_s[right]
    return s0 + (s1 - s0) * (max(tokens, knots[0]) - t0) / (t1 - t0)


@compiled
def _tokens_in(engine: Engine, seconds: float) -> float:
    """Tokens for a duration: the inverse of ``dense_s``."""
    knots, knot_s = engine.knots, engine.knot_s
    if seconds <= knot_s[0]:
        return 0.0
    right = _right(knot_s, seconds)
    t0, t1, s0, s1 = knots[right - 1], knots[right], knot_s[right - 1], knot_s[right]
    return t0 + (t1 - t0) * (seconds - s0) / (s1 - s0)


@compiled
def prompt_rate(engine: Engine, decodes: int, held: float, prompt: float) -> tuple[float, float]:
    """Prompt tokens per second with a batch, and the seconds of one step with them.

    A step has the time that decodes leave of the SLA; if none is left, a share ``LATE_FRAC`` of
    steps takes as many tokens as possible.
    """
    others = engine.decode_weight * decodes
    base_s = dense_s(engine, others) + engine.per_kv_s * held
    most = max(float(engine.max_num_batched_tokens - decodes), 1.0)
    context_s = engine.per_context_s * prompt / 2
    if decodes == 0 or engine.itl_s == math.inf:
        chunk = min(most, max(prompt, 1.0))
    else:
        attention_s = engine.per_kv_s * held
        left = _tokens_in(engine, engine.itl_s - attention_s) - others
        if context_s > 0 and left > 0:
            slope = (engine.itl_s - base_s) / left
            left *= slope / (slope + context_s)
        chunk = min(left, most)
        if chunk < 1.0:
            wait_s = base_s + LATE_FRAC * engine.itl_s
            return LATE_FRAC * most / wait_s, wait_s
    step_s = dense_s(engine, others + chunk) + engine.per_kv_s * held + context_s * chunk
    return chunk / step_s, step_s
