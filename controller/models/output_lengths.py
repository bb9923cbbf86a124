"""What one engine knows of output lengths: its own requests', and the group's as long as its own
are few.
"""

import numpy as np

from controller.models.arrays import Ints
from controller.models.survival import ENDS_KEPT, Exposure, LengthHistory, Survival

# Steps between two updates of the survival curve. Updating more seldom while few requests end
# missed answers that turn long: the sign of them is that nobody ends.
REFRESH_STEPS = 8


class OutputLengths(LengthHistory):
    """Makes a survival curve of the requests seen, where one is due.

    The group's ends stand in for the own ones, for as long as these are few.

    Attributes:
        known: the curve as it was asked for last; None: it was not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._group: Exposure | None = None
        self._shifted = False  # lengths have changed since: the group's are older than that
        self.known: Survival | None = None
        self._updated_at = 0  # step

    def receive(self, group_counts: tuple[float, ...] | None) -> None:
        """The group's counts per bin; None: as before (the local fallback has none)."""
        if group_counts is not None and not self._shifted:
            self._group = Exposure.of_finished(group_counts)

    def survival(self, step: int, *outputs: Ints) -> Survival:
        """What is known, brought up to date where that is due.

        Args:
            step: of the engine, counted from its start.
            outputs: tokens that each request has generated so far, in any number of parts.
        """
        if self.known and step < self._updated_at + REFRESH_STEPS:
            return self.known
        self._updated_at = step
        if self.update(np.concatenate(outputs), self.known):
            self._group, self._shifted = None, True
        self.known = Survival(self.pooled())
        return self.known

    def pooled(self) -> Exposure:
        """The own ends, and as many of the group's as they are short of."""
        missing = ENDS_KEPT - self.ends
        if self._group is None or missing <= 0:
            return self.seen
        return self.seen.plus(self._group, missing / max(float(self._group.ended.sum()), missing))
