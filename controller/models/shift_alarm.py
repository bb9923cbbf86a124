"""An alarm for a change of output lengths, by how many requests end."""

import math


class ShiftAlarm:
    """Says when answers have changed so much that the older ones mislead.

    Page's (1954) cumulative sum of the log likelihood ratio, of ends coming ``FACTOR`` times as
    often as expected, and as seldom, against as often as expected. The expected number is the sum
    of the hazards that all requests went through, whether they ended or not, so neither a young
    batch nor answers that end together count for or against it.
    """

    FACTOR = 2.0  # less of a change is followed by fading well enough
    ALARM = 7.0  # ln of the ends between two false alarms: 1,100
    FROM = 64  # ends; with fewer, there is nothing to drop

    def __init__(self) -> None:
        self._more = self._fewer = 0.0

    @property
    def level(self) -> float:
        """0: nothing indicates a change."""
        return max(self._more, self._fewer)

    def add(self, ends: float, expected: float) -> bool:
        """Take the ends that came and those that were expected; True is the alarm."""
        ratio, factor = math.log(self.FACTOR), self.FACTOR
        self._more = max(self._more + ends * ratio - expected * (factor - 1), 0.0)
        self._fewer = max(self._fewer - ends * ratio + expected * (1 - 1 / factor), 0.0)
        if self.level < self.ALARM:
            return False
        self._more = self._fewer = 0.0
        return True
