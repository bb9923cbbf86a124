"""Time that a run on a card may take: what there is no room for is left out, and named."""

import time
from collections.abc import Callable


class Budget:
    """Seconds from now on.

    Attributes:
        left_out: what there was no room for.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + seconds
        self.left_out: list[str] = []

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 if none are."""
        return max(self._until_s - self._clock(), 0.0)

    def room(self, seconds: float, what: str) -> bool:
        """Whether so much is left; else ``what`` is noted as left out."""
        if seconds <= self.left_s:
            return True
        self.left_out.append(what)
        return False

    def part(self, seconds: float) -> "Budget":
        """So much of it, or what is left; what it leaves out, this one names too."""
        part = Budget(min(seconds, self.left_s), self._clock)
        part.left_out = self.left_out
        return part
