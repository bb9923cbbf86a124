"""How long a replica takes from being asked for until it runs, learned by watching."""

from collections import deque
from statistics import median

KEPT = 5  # of the last starts the median counts: one that waited for a machine is not the rule
LONGEST_S = 600.0  # what takes longer waits for machines, which asking earlier does not bring


class Starts:
    """Matches the replicas asked for with those that came, oldest first.

    Args:
        assumed_s: what a start takes, until one was seen.
    """

    def __init__(self, assumed_s: float) -> None:
        self._assumed_s = assumed_s
        self._took_s: deque[float] = deque(maxlen=KEPT)
        self._asked_s: list[float] = []
        self._current: int | None = None

    def observe(self, now_s: float, current: int, target: int) -> None:
        """Count what came and what was asked for since the last look."""
        came = 0 if self._current is None else max(current - self._current, 0)
        for _ in range(min(came, len(self._asked_s))):
            self._took_s.append(max(now_s - self._asked_s.pop(0), 0.0))
        self._current = current
        coming = max(target - current, 0)
        del self._asked_s[coming:]  # no longer wanted
        self._asked_s += [now_s] * (min(coming, 10_000) - len(self._asked_s))

    @property
    def takes_s(self) -> float:
        """Seconds from now until a replica asked for now runs."""
        return min(median(self._took_s) if self._took_s else self._assumed_s, LONGEST_S)

    @property
    def learned(self) -> bool:
        """Whether a start was seen."""
        return bool(self._took_s)

    def next_s(self, now_s: float) -> float:
        """Seconds until the next replica runs: one that is coming, or one asked for now."""
        asked_s = self._asked_s[0] if self._asked_s else now_s
        return min(max(self.takes_s - (now_s - asked_s), 0.0), self.takes_s)
