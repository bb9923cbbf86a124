"""The recent past of one number: its highest and lowest value."""

from collections import deque


class Recent:
    """Values with their times, at most one for each look."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque()

    def add(self, now_s: float, value: float, keep_s: float) -> None:
        """Count ``value``; what is older than ``keep_s`` is forgotten.

        A clock that went back takes what seems to lie ahead of it along.
        """
        values = self._values
        while values and values[-1][0] > now_s:
            values.pop()
        values.append((now_s, value))
        while values[0][0] < now_s - keep_s:
            values.popleft()

    def spans(self, since_s: float) -> bool:
        """Whether anything was counted at or before that time, and is still remembered."""
        return bool(self._values) and self._values[0][0] <= since_s

    def highest(self, since_s: float) -> float:
        """The highest value since then; the last one if there is none."""
        return max((v for at, v in self._values if at >= since_s), default=self._values[-1][1])

    def lowest(self, since_s: float) -> float:
        """The lowest value since then; the last one if there is none."""
        return min((v for at, v in self._values if at >= since_s), default=self._values[-1][1])

    def at(self, time_s: float) -> float:
        """The value that was counted last at that time; the first one where there was none."""
        before = [v for at, v in self._values if at <= time_s]
        return before[-1] if before else self._values[0][1]
