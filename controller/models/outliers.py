"""What one step took that says nothing of the next: a pause of the host, a clock that jumped.

A step-time model that counts every step learns a pause of three seconds as sixty milliseconds a
step. An error beyond ``OUTLIER`` spreads is therefore cut to that many; where ``AGREE`` steps in a
row are off to the same side, it is no accident but another speed, and counts in full.
"""

import math

OUTLIER = 5.0  # spreads
AGREE = 3  # steps in a row: two are one pause that falls across a boundary between steps
SPREAD_MEMORY = 0.02  # weight of the newest error: the last 50 steps
FIRST_SPREAD = 0.5  # an error to expect of a guess, of the predicted time; it counts as one step
LEAST_SPREAD = 0.02  # no step is an outlier within a tenth: a staircase is off by that much


class Outliers:
    """Cuts single outliers out of a series of step times. Errors are relative to the prediction.

    The spread is the root mean square of the cut errors, so that a model that is wrong throughout,
    but in scattered steps, is followed, too, only later: each outlier widens it by a fifth.

    Attributes:
        agreed: whether the last step was an outlier that counted in full: another speed.
    """

    def __init__(self) -> None:
        self._variance, self._weight = FIRST_SPREAD**2, 1.0
        self._above = 0  # outliers in a row, counted up above the prediction and down below it
        self.agreed = False

    def cut(self, duration_s: float, predicted_s: float) -> float:
        """What to count the step with, seconds: its duration, or as much as can be believed of it.

        Args:
            predicted_s: what a model made of the step before it ran; 0 where it says nothing.
        """
        self.agreed = False
        if predicted_s <= 0:
            return duration_s
        error = duration_s / predicted_s - 1
        most = OUTLIER * max(math.sqrt(self._variance), LEAST_SPREAD)
        cut = min(max(error, -most), most)
        self._weight = max(self._weight / (1 + self._weight), SPREAD_MEMORY)
        self._variance += self._weight * (cut * cut - self._variance)
        if error == cut:
            self._above = 0
            return duration_s
        self._above = max(self._above, 0) + 1 if error > 0 else min(self._above, 0) - 1
        self.agreed = abs(self._above) >= AGREE
        return duration_s if self.agreed else predicted_s * (1 + cut)
