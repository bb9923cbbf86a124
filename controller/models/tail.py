"""How far steps go beyond their prediction at a percentile: what an SLA has to leave room for."""

import math
from collections import deque
from statistics import NormalDist, median

# A percentile is measured over windows of steps, and the median of the last ones is believed: a
# change of speed or of traffic spoils one of them, and is no noise.
WINDOW_STEPS = 256
# Before windows are full, the deviation of so many steps tells it, where errors are independent
# to a tenth.
FIRST_STEPS = 64
HEAVIEST = 2.0  # times the percentile of normal errors: where one window has more, it saw a change
BEYOND = 2.56  # steps of a window that are to be beyond the percentile, at least
WINDOWS, KNOWN = 5, 3  # kept, and needed for a median: 40 s of 50 ms
# Weight of the newest error in the level. A model is 50 steps behind a change too small to be told
# from noise, this is ten; it makes the percentile of independent errors 3% larger.
LEVEL = 0.1


class Tail:
    """The percentile of a model's relative errors, and their largest.

    Args:
        percentile: %, of the SLA.

    Attributes:
        frac: the percentile of duration / prediction - 1, from 0; None until it is known.
        soon: what it is taken to be before that: as if errors were normal, with the deviation of
            the calmest ``FIRST_STEPS`` so far; from the first full window on the least of the
            windows, up to ``HEAVIEST`` times as much. None before ``FIRST_STEPS``.
        most: the largest error in all windows kept; None before the first is full.
    """

    def __init__(self, percentile: float) -> None:
        beyond = 1 - percentile / 100
        # As computed, 1 - 0.99 is a little more than 0.01.
        self._n = max(WINDOW_STEPS, math.ceil(BEYOND / beyond - 1e-6))
        self._rank = self._n - 1 - int(beyond * self._n)
        self._deviations = NormalDist().inv_cdf(percentile / 100)
        self._errors: list[float] = []
        self._largest = 0.0
        self._squares, self._block = 0.0, 0  # of the errors since the last ``FIRST_STEPS``
        self._calmest: float | None = None
        self._fracs: deque[float] = deque(maxlen=WINDOWS)
        self._mosts: deque[float] = deque(maxlen=WINDOWS)
        self.frac: float | None = None
        self.most: float | None = None

    def add(self, error: float, level: float = 0.0) -> None:
        """Count a step, by its error relative to its prediction.

        Args:
            level: what the model is off by for now (``Level``). It will be learned, so it is no
                part of the percentile; until then a margin has to cover it, so the largest error
                has it.
        """
        self._errors.append(error - level)
        self._calm(error - level)
        self._largest = max(self._largest, error)
        if self.most is not None:
            self.most = max(self.most, error)
        if len(self._errors) < self._n:
            return
        self._errors.sort()
        self._fracs.append(max(self._errors[self._rank], 0.0))
        self._mosts.append(self._largest)
        self._errors.clear()
        self._largest = 0.0
        self.most = max(self._mosts)
        if len(self._fracs) >= KNOWN:
            self.frac = median(self._fracs)

    def _calm(self, error: float) -> None:
        self._squares, self._block = self._squares + error * error, self._block + 1
        if self._block == FIRST_STEPS:
            deviation = math.sqrt(self._squares / FIRST_STEPS)
            self._calmest = min(deviation, math.inf if self._calmest is None else self._calmest)
            self._squares, self._block = 0.0, 0

    @property
    def soon(self) -> float | None:
        if self._calmest is None:
            return None
        normal = self._deviations * self._calmest
        return min(HEAVIEST * normal, *self._fracs) if self._fracs else normal


class Level:
    """What a model's relative errors are off by for now: their running mean.

    After a change of speed a model is wrong by as much in every step until it has learned it. That
    is no noise; counted as noise, it is held back from the SLA for as long as windows are kept.
    """

    def __init__(self) -> None:
        self._level = 0.0

    def of(self, error: float, *, jumped: bool) -> float:
        """What ``error`` stands on, by the steps before it.

        Args:
            jumped: it is one of several in a row that show another speed: they are the level.
        """
        level = error if jumped else self._level
        self._level = level + LEVEL * (error - level)
        return level
