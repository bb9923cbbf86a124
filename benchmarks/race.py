"""The capacity of a policy's best setting, without a whole search for each of them.

The settings are tried in turn, each at first only at a rate just above the best so far; those that
do not hold there are left out.
"""

import math
from collections.abc import Callable, Sequence

from benchmarks.capacity_search import LOWEST, PRECISION, TOP, Course, holds_at
from benchmarks.cases import engine_of
from benchmarks.engine import Ground
from benchmarks.policies import Plan, parse_policy
from benchmarks.verdict import Target


def race(
    specs: Sequence[str], near: float, course: Course, ground: Ground, target: Target
) -> tuple[float, str]:
    """The best capacity of these settings, requests/s, and whose it is; 0 where none holds.

    Args:
        near: where it probably is, share of the fluid limit; a bad guess only takes longer.
    """
    limit = course.fluid_limit_per_s
    best, best_spec = 0.0, specs[0]
    for spec in specs:
        plan = parse_policy(spec, target.sla, engine_of(ground.profile))

        def holds(rate_per_s: float, plan: Plan = plan) -> bool:
            return holds_at(course, plan, ground, target, rate_per_s)

        begin = best * (1 + PRECISION) or near * limit
        if best and not holds(begin):
            continue
        per_s = highest(holds, begin, limit * LOWEST, limit * TOP, begins=bool(best))
        if per_s > best:
            best, best_spec = per_s, spec
    return best, best_spec


def highest(
    holds: Callable[[float], bool], near: float, lowest: float, top: float, *, begins: bool = False
) -> float:
    """The highest rate that holds, to ``PRECISION``; 0 where none does.

    Args:
        near: where to begin: an interval around it is widened, its steps growing, then halved.
        begins: ``near`` holds, as is known already.
    """
    low, high = _around(holds, near, lowest, top, begins)
    while low and high > low * (1 + PRECISION):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _around(
    holds: Callable[[float], bool], near: float, lowest: float, top: float, begins: bool
) -> tuple[float, float]:
    """The ends of an interval, of which the lower holds and the upper does not."""
    step = 1 + 3 * PRECISION
    if begins or holds(near):
        low = near
        while low < top:
            high = min(low * step, top)
            if not holds(high):
                return low, high
            low, step = high, step * step
        return top, top
    high = near
    while high > lowest:
        low = max(high / step, lowest)
        if holds(low):
            return low, high
        high, step = low, step * step
    return 0.0, lowest
