"""The margin under the SLA that makes violations as frequent as the percentile allows.

Adaptive conformal inference (Gibbs and Candes, 2021): the margin rises with each violation and
sinks a little with each step without one, in the ratio at which both are to occur. The long-run
rate then meets the target whatever the errors of the step-time model are distributed like: the
margin's moves add up to its range, which is bounded, so their mean goes to zero.
"""

import math

from controller.models.outliers import OUTLIER

# Of the violations allowed: where few decode, their share over half a minute varies by a quarter,
# and the percentile is to be met then, too. With 0.85 one draw of four missed it at two thirds of
# what it carried with 0.7, for which the others gave up 2% at most.
AIM = 0.7
# The margin is counted in spreads: the model's root mean square error, of the steps that the
# margin applies to (decodes alone are easily predicted). A violation moves it by this many: more
# would make the steps after it needlessly short, less would take longer to find the level.
STEP = 0.2
# No distribution has more than 1% beyond ten of its deviations (Chebyshev): further up there is
# nothing to find, only a longer way back from violations that no chunk caused.
LEVELS = (-4.0, 12.0)
LEAST_STEP_FRAC = 0.001  # of the SLA: where the model makes no error, the margin still has to move
FIRST_SPREAD_FRAC = 0.05  # of the SLA: an error to expect before any was seen
SPREAD_MEMORY = 0.02  # weight of the newest error: the last 50 steps that were sized by the SLA
FIRST_MOST = 0.25  # of the SLA: the largest margin before the errors are known


class Margin:
    """How far below the SLA to aim, seconds; may be negative where the model is too careful.

    Args:
        limit_s: the SLA.
        percentile: of all gaps, this many % are to be inside it.

    Attributes:
        limit_s: the SLA, or what steps are held to in its place.
    """

    def __init__(self, limit_s: float, percentile: float) -> None:
        self.limit_s = limit_s
        self._allowed = AIM * (1 - percentile / 100)
        self.spread_s = FIRST_SPREAD_FRAC * limit_s
        self._level = 3.0  # in spreads: about where heavy-tailed errors have their 99th percentile
        self._decodes = 0.0
        self._most_s = FIRST_MOST * limit_s

    @property
    def seconds(self) -> float:
        """The margin; no larger than helps, so that no run of bad luck stops the engine."""
        return min(self._level * self._unit_s, self._most_s)

    def bound(self, most_frac: float) -> None:
        """Bound it by the largest error of a few hundred steps, relative to their prediction.

        A step predicted to take D - D f / (1 + f) takes D with that error; a shorter one is
        inside the SLA already, or late for a reason that no margin covers.
        """
        self._most_s = self.limit_s * most_frac / (1 + most_frac)

    @property
    def _unit_s(self) -> float:
        return max(self.spread_s, LEAST_STEP_FRAC * self.limit_s)

    def observe(self, duration_s: float, predicted_s: float, decodes: int) -> None:
        """Learn from a step that decoded, and whose size was chosen to end just inside the SLA.

        A pause of the host is not the model's usual error, and counts as ``OUTLIER`` spreads.
        """
        violated = duration_s > self.limit_s
        most_s = OUTLIER * self._unit_s
        error_s = min(max(duration_s - predicted_s, -most_s), most_s)
        variance = (1 - SPREAD_MEMORY) * self.spread_s**2 + SPREAD_MEMORY * error_s**2
        self.spread_s = math.sqrt(variance)
        # A step counts once for each token that waited for it, as in the SLA's percentile.
        self._decodes = (
            self._decodes + 0.01 * (decodes - self._decodes) if self._decodes else decodes
        )
        weight = min(decodes / self._decodes, 4.0)
        level = self._level + STEP * weight * (violated - self._allowed)
        # Not further beyond the bound: the way back is a hundred times as long.
        if not violated or self._level * self._unit_s < self._most_s:
            self._level = min(max(level, LEVELS[0]), LEVELS[1])

    def late_token(self) -> None:
        """One token was late for another reason than the size of its step: fewer others may be."""
        if self._decodes and self._level * self._unit_s < self._most_s:
            self._level = min(self._level + STEP / self._decodes, LEVELS[1])
