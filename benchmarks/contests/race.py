"""The capacity of a policy's best setting, without a whole search for each of them.

The settings are tried in turn, each at first only at a rate just above the best so far; those that
do not hold there are left out.
"""

import math
from collections.abc import Callable, Sequence

from simulator.replay.capacity import LOWEST, PRECISION, Course, holds_at
from simulator.replay.engine import Ground
from simulator.replay.verdict import Target
from simulator.virtual.plan import engine_of, parse_policy


class Race:
    """A race on one draw of requests.

    Args:
        near: where the best capacity probably is, share of the fluid limit; a bad guess only takes
            longer.
        precision: of the capacity, and by how much a setting must be better to count as better.

    Attributes:
        per_s, spec: the best so far, requests/s, and whose it is; 0 and empty where none holds.
    """

    def __init__(
        self,
        near: float,
        course: Course,
        ground: Ground,
        target: Target,
        precision: float = PRECISION,
    ) -> None:
        self.per_s = 0.0
        self.spec = ""
        self._near = near
        self._course, self._ground, self._target = course, ground, target
        self._precision = precision

    def enter(self, spec: str) -> bool:
        """Try a setting; says whether it is the best so far."""
        course, ground, target = self._course, self._ground, self._target
        plan = parse_policy(spec, target.sla, engine_of(ground.profile))
        limit = course.fluid_limit_per_s

        def holds(rate_per_s: float) -> bool:
            return holds_at(course, plan, ground, target, rate_per_s)

        begin = self.per_s * (1 + self._precision) or self._near * limit
        known = bool(self.per_s)
        if known and not holds(begin):
            return False
        found = highest(
            holds, begin, limit * LOWEST, limit * course.top, self._precision, begins=known
        )
        better = found > self.per_s
        if better:
            self.per_s, self.spec = found, spec
        return better


def race(
    specs: Sequence[str], near: float, course: Course, ground: Ground, target: Target
) -> tuple[float, str]:
    """The best capacity of these settings, requests/s, and whose it is; 0 where none holds."""
    runs = Race(near, course, ground, target)
    for spec in specs:
        runs.enter(spec)
    return runs.per_s, runs.spec or specs[0]


def highest(
    holds: Callable[[float], bool],
    near: float,
    lowest: float,
    top: float,
    precision: float = PRECISION,
    *,
    begins: bool = False,
) -> float:
    """The highest rate that holds, to ``precision``; 0 where none does.

    Args:
        near: where to begin: an interval around it is widened, its steps growing, then halved.
        begins: ``near`` holds, as is known already.
    """
    low, high = _around(holds, near, lowest, top, 1 + 3 * precision, begins)
    while low and high > low * (1 + precision):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _around(
    holds: Callable[[float], bool],
    near: float,
    lowest: float,
    top: float,
    step: float,
    begins: bool,
) -> tuple[float, float]:
    """The ends of an interval, of which the lower holds and the upper does not."""
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
