"""The recent past of one number: its highest and lowest value."""

from collections import deque


class Recent:
    """Values with their times, at most one for each reading."""

    def __init__(self) -> None:
        self._values: deque[tuple[float, float]] = deque()

    def add(self, now_s: float, value: float, keep_s: float) -> None:
        """Add ``value``; values older than ``keep_s`` are dropped.

        If the clock went back, values from after ``now_s`` are dropped as well.
        """
        values = self._values
        while values and values[-1][0] > now_s:
            values.pop()
        values.append((now_s, value))
        while values[0][0] < now_s - keep_s:
            values.popleft()

    def spans(self, since_s: float) -> bool:
        """Whether a value from that time or before is still there."""
        return bool(self._values) and self._values[0][0] <= since_s

    def highest(self, since_s: float) -> float:
        """The highest value since then; the last one if there is none."""
        return max((v for at, v in self._values if at >= since_s), default=self._values[-1][1])

    def lowest(self, since_s: float) -> float:
        """The lowest value since then; the last one if there is none."""
        return min((v for at, v in self._values if at >= since_s), default=self._values[-1][1])

    def at(self, time_s: float) -> float:
        """The last value at that time; the first one if there is none before."""
        before = [v for at, v in self._values if at <= time_s]
        return before[-1] if before else self._values[0][1]
