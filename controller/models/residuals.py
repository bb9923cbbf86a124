"""What a step's residual, log(duration / prediction), says of the next step.

- A pause of the host says nothing of it: residuals are clipped at ``CLIP`` RMSE. The RMSE counts
  them clipped: where a fifth of the steps or more are, it grows until none is. Steps with a prompt
  have an RMSE of their own: beside a hundred without one, what is wrong of the few with one is no
  pause.
- A regime change, which is a change of the engine's speed (another tenant, another clock rate),
  makes all steps longer alike: all but one of the last ``REGIME_STEPS`` residuals show it.
"""

import math
from collections import deque

CLIP = 2.5  # RMSE
LEAST_RMSE = 0.02  # a fifth of a tenth: staircases are off by that much without any noise
FIRST_RMSE = 0.5  # of a guess
RMSE_MEMORY = 0.02  # weight of the newest residual
REGIME_STEPS = 7
REGIME_RMSE, LEAST_CHANGE = 2.0, 0.2  # the least change, in RMSE and in log seconds


class Residuals:
    """What a step counts as: its duration, clipped; and whether the engine's speed has changed."""

    def __init__(self) -> None:
        self._variance, self._weight = [FIRST_RMSE**2] * 2, [1.0] * 2  # without a prompt, with one
        self._recent: deque[tuple[float, float]] = deque(maxlen=REGIME_STEPS)

    def _rmse(self, prompts: bool) -> float:
        return max(math.sqrt(self._variance[prompts]), LEAST_RMSE)

    def regime_change(self, duration_s: float, predicted_s: float, prompts: bool) -> float:
        """By what factor steps take longer than predicted since a moment ago; 1: no change.

        Counted from the prediction; asked once for each step.
        """
        residual = math.log(duration_s / predicted_s)
        least = max(REGIME_RMSE * self._rmse(prompts), LEAST_CHANGE)
        before = self._recent[-1][0] if self._recent else 0.0
        self._recent.append((residual / least, residual))
        two_alike = abs(before) <= 1 and abs(residual) <= least  # all but one would have to show it
        if two_alike or len(self._recent) < REGIME_STEPS:
            return 1.0
        ordered = sorted(self._recent)
        if ordered[1][0] <= 1 and ordered[-2][0] >= -1:
            return 1.0
        middle = sorted(residual for _, residual in self._recent)[REGIME_STEPS // 2]
        self._recent.clear()
        return math.exp(middle)

    def clipped(self, duration_s: float, predicted_s: float, prompts: bool) -> float:
        """The seconds that a step counts as; as it is where either is no number above 0."""
        if not (predicted_s > 0 and 0 < duration_s / predicted_s < math.inf):
            return duration_s
        most = CLIP * self._rmse(prompts)
        residual = min(max(math.log(duration_s / predicted_s), -most), most)
        weight = max(self._weight[prompts] / (1 + self._weight[prompts]), RMSE_MEMORY)
        self._weight[prompts] = weight
        self._variance[prompts] += weight * (residual * residual - self._variance[prompts])
        return predicted_s * math.exp(residual)
