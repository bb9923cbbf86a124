"""How far a batch is, and whether its window ends before it does at the present rate. Pure."""

from collections import deque
from collections.abc import Iterable

LOOK_FRAC = 1 / 24  # of the window, over which the rate is measured: an hour of a day
LEAST_LOOK_S = 1.0
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
        # After a restart no more than the same share of what is left of the window.
        self._look_s = max(min(window_s, due_s - now_s) * LOOK_FRAC, LEAST_LOOK_S)
        self._marks = deque([(now_s, answers)])
        self._late = False

    def answered(self) -> None:
        """A line has its answer."""
        self.left -= 1

    def end_s(self, now_s: float, answers: int, others: Iterable[int] = ()) -> float | None:
        """Seconds until all have one, at the present rate; None: too little is known of that.

        The rate is that of all batches. Slots are given in turns, so before this batch ends each
        other one gets as many answers as it does, or all of its own.

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
