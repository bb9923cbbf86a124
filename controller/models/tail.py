"""How far steps go beyond their prediction at a percentile: what an SLA has to leave room for."""

import math
from collections import deque
from statistics import median

# A percentile is measured over windows of steps, and the median of the last ones is believed: a
# change of speed or of traffic spoils one of them, and is no noise.
WINDOW_STEPS = 256
BEYOND = 2.56  # steps of a window that are to be beyond the percentile, at least
WINDOWS, KNOWN = 5, 3  # kept, and needed for a median: 40 s of 50 ms


class Tail:
    """The percentile of a model's relative errors, and their largest.

    Args:
        percentile: %, of the SLA.

    Attributes:
        frac: the percentile of duration / prediction - 1, from 0; None until it is known.
        most: the largest error in all windows kept; None before the first is full.
    """

    def __init__(self, percentile: float) -> None:
        beyond = 1 - percentile / 100
        # As computed, 1 - 0.99 is a little more than 0.01.
        self._n = max(WINDOW_STEPS, math.ceil(BEYOND / beyond - 1e-6))
        self._rank = self._n - 1 - int(beyond * self._n)
        self._errors: list[float] = []
        self._fracs: deque[float] = deque(maxlen=WINDOWS)
        self._mosts: deque[float] = deque(maxlen=WINDOWS)
        self.frac: float | None = None
        self.most: float | None = None

    def add(self, error: float) -> None:
        """Count a step, by its error relative to its prediction."""
        self._errors.append(error)
        if len(self._errors) < self._n:
            return
        self._errors.sort()
        self._fracs.append(max(self._errors[self._rank], 0.0))
        self._mosts.append(max(self._errors[-1], 0.0))
        self._errors.clear()
        self.most = max(self._mosts)
        if len(self._fracs) >= KNOWN:
            self.frac = median(self._fracs)
