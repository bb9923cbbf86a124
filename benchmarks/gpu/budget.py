"""The time of a run on a card: parts without enough time are left out, and named."""

import time
from collections.abc import Callable


class Budget:
    """Seconds from now on.

    Attributes:
        left_out: parts without enough time.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + seconds
        self.left_out: list[str] = []

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 if none are."""
        return max(self._until_s - self._clock(), 0.0)

    def allows(self, seconds: float, what: str) -> bool:
        """Whether this much is left; otherwise ``what`` is added to ``left_out``."""
        if seconds <= self.left_s:
            return True
        self.left_out.append(what)
        return False

    def part(self, seconds: float) -> "Budget":
        """A part of this budget, at most what is left; both share ``left_out``."""
        part = Budget(min(seconds, self.left_s), self._clock)
        part.left_out = self.left_out
        return part
