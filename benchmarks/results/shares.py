"""The share of requests inside an agreement on their mean time between tokens."""

import numpy as np

from controller.config import Sla
from simulator.replay.measure import TOLERANCE
from simulator.virtual.trace import Outcome, Trace


def inside(outcome: Outcome, tpot_s: float, ttft_s: float) -> bool:
    """Whether a request was served to its end within both.

    TPOT is (last token - first token) / (tokens - 1), so the mean of its times between tokens; one
    with a single token has none, and is inside.
    """
    first_s, finished_s = outcome.first_token_s, outcome.finished_s
    if first_s is None or finished_s is None:
        return False
    in_time = first_s - outcome.request.arrival_s <= ttft_s * TOLERANCE
    return in_time and finished_s - first_s <= tpot_s * (outcome.tokens - 1) * TOLERANCE


def share_inside(trace: Trace, sla: Sla) -> float:
    """Share of all requests that are inside ``itl_ms`` on average, and inside ``ttft_ms``."""
    limits = (sla.itl_ms or np.inf) / 1000, (sla.ttft_ms or np.inf) / 1000
    return sum(inside(o, *limits) for o in trace.outcomes) / len(trace.outcomes)
