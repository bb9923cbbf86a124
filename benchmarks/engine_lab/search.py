"""Static limits that are compared, and the highest rate that any of them holds."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.engine_lab.tasks import Limits
from controller.errors import BrimfulError

CAPS = (8, 12, 16, 24, 32, 64)
TOKEN_BUDGETS = (12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 256, 2048)
LOWEST_PER_S = 0.05  # streams: where the search for a rate begins
GROWTH, PRECISION = 1.25, 1.01  # from one rate to the next, and of the one that is found


def candidates() -> list[Limits]:
    """Static limits with which vLLM starts."""
    return [Limits(cap, budget) for cap in CAPS for budget in TOKEN_BUDGETS if budget >= cap]


def highest_rate(
    limits: Sequence[Limits], holds: Callable[[Limits, float], bool]
) -> dict[str, Any]:
    """The highest rate that any of these limits hold, and which.

    Limits that hold no more than the best before them cost one question; in random order few are
    better than all before.

    Raises:
        BrimfulError: none holds ``LOWEST_PER_S``.
    """
    best, rate = None, LOWEST_PER_S
    for one in random.Random(0).sample(limits, len(limits)):
        if not holds(one, rate * PRECISION):
            continue
        best, low = one, rate * PRECISION
        while holds(one, low * GROWTH):
            low *= GROWTH
        high = low * GROWTH
        while high > low * PRECISION:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if holds(one, middle) else (low, middle)
        rate = low
    if best is None:
        raise BrimfulError(
            f"no static limits hold the SLA at {LOWEST_PER_S:g} streams/s on the recorded steps:"
            " this machine is too slow or too busy; --sla-ms allows longer steps"
        )
    return {"rate_per_s": rate, "limits": asdict(best)}
