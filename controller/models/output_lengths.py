"""What one engine knows of output lengths: its own requests', and the group's as long as its own
are few.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from controller.models.survival import ENDS_KEPT, Exposure, Ints, LengthHistory, Survival

# Steps between two updates of the survival curve. Updating more seldom while few requests end
# missed answers that turn long: the sign of them is that nobody ends.
REFRESH_STEPS = 8


class PooledLengths:
    """An engine's own history of lengths, filled up with the group's while the engine is new."""

    def __init__(self) -> None:
        self._own = LengthHistory()
        self._group: Exposure | None = None
        self._shifted = False  # lengths have changed since: the group's are older than that

    def receive(self, group_counts: tuple[float, ...] | None) -> None:
        """The group's counts per bin; None: as before (the local fallback has none)."""
        if group_counts is not None and not self._shifted:
            self._group = Exposure.of_finished(group_counts)

    def update(
        self, finished: Sequence[int], aborted: Sequence[int], outputs: Ints, known: Survival | None
    ) -> None:
        """Take what happened since the last update (``LengthHistory.update``)."""
        if self._own.update(finished, aborted, outputs, known):
            self._group, self._shifted = None, True

    def pooled(self) -> Exposure:
        """All of it."""
        own, missing = self._own.seen, ENDS_KEPT - self._own.ends
        if self._group is None or missing <= 0:
            return own
        return own.plus(self._group, missing / max(float(self._group.ended.sum()), missing))


class OutputLengths:
    """Collects the ends of requests, and makes of them a survival curve where one is due."""

    def __init__(self) -> None:
        self._pool = PooledLengths()
        # Output tokens of those that ended since the last update; no step may ask for long.
        self._finished: deque[int] = deque(maxlen=ENDS_KEPT)
        self._aborted: deque[int] = deque(maxlen=ENDS_KEPT)
        self._survival: Survival | None = None
        self._updated_at = 0  # step

    def receive(self, group_counts: tuple[float, ...] | None) -> None:
        """The group's counts per bin; None: as before."""
        self._pool.receive(group_counts)

    def finished(self, output_tokens: int) -> None:
        """A request ended by itself after so many tokens."""
        self._finished.append(output_tokens)

    def aborted(self, output_tokens: int) -> None:
        """A request was aborted after so many tokens."""
        self._aborted.append(output_tokens)

    @property
    def known(self) -> Survival | None:
        """What it was last, whether brought up to date or not; None before it was asked for."""
        return self._survival

    def survival(self, step: int, *outputs: Ints) -> Survival:
        """What is known, brought up to date where that is due.

        Args:
            step: of the engine, counted from its start.
            outputs: tokens that each request has generated so far, in any number of parts.
        """
        if self._survival and step < self._updated_at + REFRESH_STEPS:
            return self._survival
        self._updated_at = step
        self._pool.update(self._finished, self._aborted, np.concatenate(outputs), self._survival)
        self._finished.clear()
        self._aborted.clear()
        self._survival = Survival(self._pool.pooled())
        return self._survival
