"""What one engine knows of output lengths: its own requests', and the group's as long as its own
are few.
"""

from collections import deque

import numpy as np

from controller.models.arrays import Ints
from controller.models.survival import ENDS_KEPT, Exposure, LengthHistory, Survival

# Steps between two updates of the survival curve. Updating more seldom while few requests end
# missed answers that turn long: the sign of them is that nobody ends.
REFRESH_STEPS = 8


class OutputLengths:
    """Collects the ends of requests, and makes of them a survival curve where one is due.

    The group's stand in for the own ones, for as long as these are few.
    """

    def __init__(self) -> None:
        self._own = LengthHistory()
        self._group: Exposure | None = None
        self._shifted = False  # lengths have changed since: the group's are older than that
        # Output tokens of those that ended since the last update; no step may ask for long.
        self._finished: deque[int] = deque(maxlen=ENDS_KEPT)
        self._aborted: deque[int] = deque(maxlen=ENDS_KEPT)
        self._survival: Survival | None = None
        self._updated_at = 0  # step

    def receive(self, group_counts: tuple[float, ...] | None) -> None:
        """The group's counts per bin; None: as before (the local fallback has none)."""
        if group_counts is not None and not self._shifted:
            self._group = Exposure.of_finished(group_counts)

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
        ended, running = (self._finished, self._aborted), np.concatenate(outputs)
        if self._own.update(*ended, running, self._survival):
            self._group, self._shifted = None, True
        self._finished.clear()
        self._aborted.clear()
        self._survival = Survival(self.pooled())
        return self._survival

    def pooled(self) -> Exposure:
        """The own ends, and as many of the group's as they are short of."""
        own, missing = self._own.seen, ENDS_KEPT - self._own.ends
        if self._group is None or missing <= 0:
            return own
        return own.plus(self._group, missing / max(float(self._group.ended.sum()), missing))
