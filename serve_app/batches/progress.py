"""How far a batch is, and whether its window ends before it does at the present rate. Pure."""

from collections import deque

LOOK_FRAC = 1 / 24  # of the window, over which the rate is measured: an hour of a day
MARKS = 60  # of the count in that time
RELAXED = 0.8  # a batch that was late is not once it takes this share of what is left
LONGEST_S = 365 * 86400.0  # of a forecast; a batch that stands still has no end


class Progress:
    """One batch that is being carried out.

    Args:
        left: its lines without an answer.
        due_s: Unix time when its window ends.
        window_s: how long that is, from its creation.
        now_s: Unix time.

    Attributes:
        under_way: requests that were sent and have no answer.
    """

    def __init__(self, left: int, due_s: float, window_s: float, now_s: float) -> None:
        self.left, self.due_s = left, due_s
        self.under_way = 0
        self._look_s = window_s * LOOK_FRAC
        self._marks = deque([(now_s, left)])
        self._late = False

    def answered(self) -> None:
        """A line has its answer."""
        self.left -= 1

    def end_s(self, now_s: float) -> float | None:
        """Seconds until all have one, at the present rate; None: too little is known of that."""
        marks = self._marks
        if now_s - marks[-1][0] >= self._look_s / MARKS:
            marks.append((now_s, self.left))
        while len(marks) > 1 and marks[1][0] <= now_s - self._look_s:
            marks.popleft()
        since_s, before = marks[0]
        if now_s - since_s < self._look_s:
            return None
        done = before - self.left
        return min(self.left * (now_s - since_s) / done, LONGEST_S) if done else LONGEST_S

    def late(self, now_s: float) -> bool:
        """Whether its window would end first."""
        if (end_s := self.end_s(now_s)) is not None:
            left_s = max(self.due_s - now_s, 0.0)
            self._late = end_s > (RELAXED * left_s if self._late else left_s)
        return self._late
