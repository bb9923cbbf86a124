"""Lengths of arriving requests while the long ones have not ended yet.

In a young engine, moments of finished requests alone are those of the short ones: after 20 s,
answers with a mean of 447 tokens look like 137, and an engine seems to carry as many more requests.
Requests that still run also tell how long answers are (``controller.models.survival``).
"""

import math

import numpy as np

from controller.models.lengths import LengthMoments
from controller.models.survival import (
    AGES,
    Exposure,
    LengthHistory,
)

PRIOR_REQUESTS = 1.0  # weight of the mean hazard in each bin, in requests


class LiveLengths(LengthHistory):
    """Corrects the moments of finished requests by the running ones."""

    def corrected(self, ended: LengthMoments, prompts: LengthMoments) -> LengthMoments:
        """The moments of ``ended.n`` requests.

        Args:
            ended: of finished requests.
            prompts: of arriving prompts; used for prompt lengths if they are more than the finished
                ones.
        """
        if not ended.n or not ended.output:
            return ended
        mean, square = _moments(self.seen)
        longer = mean / ended.mean_output
        by_prompts = prompts.n > ended.n
        wider = prompts.mean_input / ended.mean_input if by_prompts and ended.input else 1.0
        square_in = prompts.input_sq / prompts.n if by_prompts else ended.input_sq / ended.n
        output = round(ended.n * mean)
        return LengthMoments(
            n=ended.n,
            input=round(ended.input * wider),
            output=output,
            input_sq=round(ended.n * square_in),
            # Whole tokens, without a variance below 0: rounding matters for a few short ones.
            output_sq=max(round(ended.n * square), math.ceil(output * output / ended.n)),
            # The correlation of prompts and answers is that of finished requests.
            cross=round(ended.cross * wider * longer),
            cached=round(ended.cached * wider),
        )


def _moments(seen: Exposure) -> tuple[float, float]:
    """E[output] and E[output^2], tokens and tokens^2.

    Bins that few answers reached get the mean hazard per token. The heavier tail that memory
    is planned with (``Survival``) would make answers seem a third longer here.
    """
    widths = np.diff(AGES)
    per_token = float(seen.ended.sum() / (seen.at_risk @ widths))
    expected = -np.expm1(-per_token * widths)
    share = (seen.ended + PRIOR_REQUESTS * expected) / (seen.at_risk + PRIOR_REQUESTS)
    # The mean hazard holds up to twice the greatest age seen: equal lengths have no tail.
    share[AGES[:-1] > 2 * AGES[1:][seen.at_risk > 0].max()] = 1.0
    alive = np.concatenate([[1.0], np.cumprod(1 - np.minimum(share, 1.0))])
    within = (alive[1:] + alive[:-1]) / 2 * widths
    middle = (AGES[1:] + AGES[:-1]) / 2
    # Sums over whole tokens from integrals: of S(x) half a token more, of (2x + 1) S(x) unchanged.
    area = float(within.sum())
    return area + 0.5, float(2 * within @ middle) + area
