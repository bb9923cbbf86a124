"""The rows of an engine's steps, kept until the controller has them."""

from collections import deque
from itertools import islice

from controller.law.rows import KEPT, STARTS_KEPT, Row, pack
from controller.records import PackedRows, StepSample


class StepLog:
    """The last rows of one engine, numbered from 0.

    Attributes:
        wanted: number of the first row in the next report.
    """

    def __init__(self) -> None:
        self._rows: deque[Row] = deque(maxlen=KEPT)
        self._starts: deque[tuple[int, int]] = deque(maxlen=STARTS_KEPT)
        self._next = self.wanted = 0

    @property
    def steps(self) -> int:
        """Steps since the engine started."""
        return self._next

    def add(self, sample: StepSample) -> None:
        """Add a finished step."""
        self._rows.append((*sample.features, sample.duration_s, *sample.by_class))
        for tokens in sample.started:
            self._starts.append((self._next, tokens))
        self._next += 1

    def packed(self) -> PackedRows:
        """The wanted rows that are still kept."""
        first = max(self.wanted, self._next - len(self._rows))
        rows = list(islice(self._rows, len(self._rows) - (self._next - first), None))
        starts = [number for one in self._starts if one[0] >= self.wanted for number in one]
        return pack(first, rows, starts)
