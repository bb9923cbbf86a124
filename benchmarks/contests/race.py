"""The best of several settings on the requests of one seed."""

import math
from collections.abc import Callable

PRECISION = 0.01  # relative, of a capacity: half of that of ``--find-capacity``


class Trial:
    """Settings on one seed, tried in turn.

    Args:
        value: the figure of a setting; more is better.

    Attributes:
        best, spec: the best figure so far and its setting; 0 and empty if no setting has one.
    """

    def __init__(self, value: Callable[[str], float]) -> None:
        self.best, self.spec = 0.0, ""
        self._value = value

    def enter(self, spec: str) -> bool:
        """Try a setting; returns whether it is the best so far."""
        found = self._value(spec)
        if better := found > self.best:
            self.best, self.spec = found, spec
        return better


class Race(Trial):
    """A trial for the highest rate that holds.

    Each setting is first tried just above the best rate so far; if it does not hold that, it is
    left out.

    Args:
        holds: whether a setting holds a rate.
        near: a guess of the best capacity; a bad one only takes longer.
        lowest, top: bounds of the search.
    """

    def __init__(
        self, holds: Callable[[str, float], bool], near: float, lowest: float, top: float
    ) -> None:
        super().__init__(self._capacity)
        self._holds, self._near, self._lowest, self._top = holds, near, lowest, top

    def _capacity(self, spec: str) -> float:
        begin, known = self.best * (1 + PRECISION) or self._near, bool(self.best)
        if known and not self._holds(spec, begin):
            return 0.0
        return highest(
            lambda rate: self._holds(spec, rate), begin, self._lowest, self._top, begins=known
        )


def highest(
    holds: Callable[[float], bool],
    near: float,
    lowest: float,
    top: float,
    precision: float = PRECISION,
    *,
    begins: bool = False,
) -> float:
    """The highest rate that holds, to ``precision``; 0 if none does.

    Args:
        near: the first rate; an interval around it is widened in growing steps, then halved.
        begins: whether ``near`` is known to hold.
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
    """An interval whose lower end holds and whose upper end does not."""
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
