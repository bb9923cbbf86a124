"""Rates of counters: requests that arrive, seconds of steps."""

from collections import deque

WINDOW_S = 10.0  # Ray Serve's own metrics interval


class Rate:
    """The rate of a counter that is sampled from time to time."""

    def __init__(self, now_s: float) -> None:
        self._marks: deque[tuple[float, float]] = deque([(now_s, 0)])

    def per_s(self, count: float, now_s: float) -> float:
        """The rate over the last ``WINDOW_S``, from the last sample before that window."""
        marks = self._marks
        marks.append((now_s, count))
        while len(marks) > 2 and marks[1][0] <= now_s - WINDOW_S:
            marks.popleft()
        since_s, before = marks[0]
        # The first call just after the start would divide by nearly 0.
        return (count - before) / max(now_s - since_s, 1.0)
