"""The step-time model one engine goes by from step to step: fast, and never without an answer.

The fit of ``controller.models.step_time`` forgets slowly, so that a group can pool it. Real steps
are staircases, and a traffic mix moves along them: this one remembers the last 50 steps, and takes
what they do not tell from a prior, the group's model or, before there is one, a guess from the SLA.
"""

import math

import numpy as np
from numpy.typing import NDArray

from controller.models.step_time import FEATURES, SCALE, StepModel, nonnegative

FORGET = 0.98  # per step: 50 steps are remembered, 2.5 s at 50 ms
REFIT_STEPS = 8  # a fit takes as long as the bookkeeping of a step or two
PRIOR_STEPS = 5.0  # what the group's model weighs, in steps of this engine
GUESS_STEPS = 0.2  # ... and the guess: the first steps overrule it


def guess(limit_s: float) -> StepModel:
    """Before the first step: an SLA is set where a model meets it, with room.

    Half of it goes for an empty step; 256 decodes or 512 prompt tokens fill the rest.
    """
    return StepModel(0.5 * limit_s, limit_s / 512, 0.0, limit_s / 1024, 0.0, 0.05 * limit_s)


class OnlineStepModel:
    """Least squares over the last steps, shrunk towards a prior (information form).

    Solves (A + R) theta = b + R theta0 with A and b forgotten at ``FORGET`` per step. R weighs the
    prior as so many steps in each feature's own size, so the result does not depend on units, and
    a direction that the steps do not excite stays where the prior has it. No coefficient is
    negative.
    """

    def __init__(self, prior: StepModel, weight_steps: float = GUESS_STEPS) -> None:
        self._a: NDArray[np.float64] = np.zeros((FEATURES, FEATURES))
        self._b: NDArray[np.float64] = np.zeros(FEATURES)
        self._n = 0.0
        self._rows: list[tuple[float, float, float, float, float, float]] = []
        self.believe(prior, weight_steps)

    def believe(self, prior: StepModel, weight_steps: float = PRIOR_STEPS) -> None:
        """Take another prior; what was seen stays."""
        self._prior_model, self._weight = prior, weight_steps
        self._prior = np.array([prior.c0, prior.c1, prior.c2, prior.c3, prior.c4]) * SCALE
        self._solve()

    @property
    def prior(self) -> StepModel:
        return self._prior_model

    def learn(self, decodes: int, kv: int, prefill: int, context: int, duration_s: float) -> None:
        self._rows.append((1.0, decodes, kv, prefill, context, duration_s))
        if len(self._rows) >= REFIT_STEPS:
            self._fold()
            self._solve()

    def _fold(self) -> None:
        rows = np.array(self._rows)
        self._rows.clear()
        v, t = rows[:, :FEATURES] / SCALE, rows[:, FEATURES]
        weight = FORGET ** np.arange(len(rows) - 1, -1, -1)
        fade = FORGET ** len(rows)
        weighted = v.T * weight
        self._a = fade * self._a + weighted @ v
        self._b = fade * self._b + weighted @ t
        self._n = fade * self._n + float(weight.sum())

    def _solve(self) -> None:
        size = np.diag(self._a) / max(self._n, 1.0) + 1e-6
        ridge = self._weight * size
        theta = nonnegative(self._a + np.diag(ridge), self._b + ridge * self._prior)
        c0, c1, c2, c3, c4 = (theta / SCALE).tolist()
        self.model = StepModel(c0, c1, c2, c3, c4, self._prior_model.sigma_s)


def prefill_room(model: StepModel, decodes: int, kv: int, context: int, limit_s: float) -> float:
    """The longest prefill chunk, tokens, with which a step ends by ``limit_s``; may be negative.

    Args:
        context: tokens of the first prompt in line that are computed already.
    """
    room_s = limit_s - model.predict_s(decodes, kv, 0, 0)
    # c4/2 P^2 + (c3 + c4 context) P = room
    half, linear = model.c4 / 2, model.c3 + model.c4 * context
    if room_s <= 0 or half <= 0:
        return room_s / linear if linear > 0 else math.copysign(math.inf, room_s)
    return (math.sqrt(linear * linear + 4 * half * room_s) - linear) / (2 * half)
