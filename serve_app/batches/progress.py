"""Progress of a batch, and whether it will miss its window at the present rate. Pure."""

from collections import deque
from collections.abc import Iterable

LOOK_FRAC = 1 / 24  # share of the window over which the rate is measured: an hour of a day
LEAST_LOOK_S = 1.0
MARKS = 60  # of the answers in that time
RELAXED = 0.8  # a late batch counts as in time again once it needs this share of the time left
LONGEST_S = 365 * 86400.0  # longest forecast; a batch without progress has no end


class Progress:
    """One batch in progress.

    Args:
        left: its lines without an answer.
        due_s: Unix time when its window ends.
        window_s: how long that is, from its creation.
        now_s: Unix time.
        answers: of all batches until now.

    Attributes:
        created_s: Unix time of its creation.
        under_way: requests that were sent and have no answer.
    """

    def __init__(
        self, left: int, due_s: float, window_s: float, now_s: float, answers: int = 0
    ) -> None:
        self.left, self.due_s, self.created_s = left, due_s, due_s - window_s
        self.under_way = 0
        # After a restart, at most the same share of the rest of the window.
        self._look_s = max(min(window_s, due_s - now_s) * LOOK_FRAC, LEAST_LOOK_S)
        self._marks = deque([(now_s, answers)])
        self._late = False

    def answered(self) -> None:
        """A line has its answer."""
        self.left -= 1

    def end_s(self, now_s: float, answers: int, others: Iterable[int] = ()) -> float | None:
        """Seconds until all lines have an answer, at the present rate; None: unknown.

        The rate is that of all batches. Slots are given in turns, so before this batch ends each
        other batch gets as many answers as this one, or all that it needs.

        Args:
            answers: of all batches until now.
            others: lines without an answer, of each other batch.
        """
        marks = self._marks
        if now_s - marks[-1][0] >= self._look_s / MARKS:
            marks.append((now_s, answers))
        while len(marks) > 1 and marks[1][0] <= now_s - self._look_s:
            marks.popleft()
        since_s, before = marks[0]
        if now_s - since_s < self._look_s:
            return None
        done = answers - before
        ahead = self.left + sum(min(self.left, other) for other in others)
        return min(ahead * (now_s - since_s) / done, LONGEST_S) if done else LONGEST_S

    def late(self, now_s: float, answers: int, others: Iterable[int] = ()) -> bool:
        """Whether its window would end first; arguments as of ``end_s``."""
        if (end_s := self.end_s(now_s, answers, others)) is not None:
            left_s = max(self.due_s - now_s, 0.0)
            self._late = end_s > (RELAXED * left_s if self._late else left_s)
        return self._late
