"""The step-time model one engine goes by from step to step: fast, and never without an answer.

The fit of ``controller.models.step_time`` forgets slowly, so that a group can pool it. Real steps
are staircases, and a traffic mix moves along them: this one remembers the last 50 steps, and takes
what they do not tell from a prior, the group's model or, before there is one, a guess from the SLA.
"""

import math
from itertools import pairwise
from operator import mul

from controller.models.outliers import Outliers
from controller.models.step_time import FEATURES, SCALE, StepModel

ONLINE_FORGET = 0.98  # per step: 50 steps are remembered, 2.5 s at 50 ms
REFIT_STEPS = 8  # a fit takes as long as the bookkeeping of a step or two
PRIOR_STEPS = 5.0  # what the group's model weighs, in steps of this engine
TINY = 1e-6  # of a scaled step: a feature that was never seen keeps its prior
GUESS_STEPS = 0.2  # ... and the guess: the first steps overrule it

_SCALE: list[float] = SCALE.tolist()
# Of a symmetric matrix the lower triangle is kept, row by row, and where its rows begin.
_LOWER = [(i, j) for i in range(FEATURES) for j in range(i + 1)]
_ROWS = [i * (i + 1) // 2 for i in range(FEATURES + 1)]


def guess(limit_s: float) -> StepModel:
    """Before the first step: an SLA is set where a model meets it, with room.

    Half of it goes for an empty step; 256 decodes or 512 prompt tokens fill the rest.
    """
    return StepModel(0.5 * limit_s, limit_s / 512, 0.0, limit_s / 1024, 0.0, 0.05 * limit_s)


class OnlineStepModel:
    """Least squares over the last steps, shrunk towards a prior (information form).

    Solves (A + R) theta = b + R theta0 with A and b forgotten at ``ONLINE_FORGET`` per step. R
    weighs the prior as so many steps in each feature's own size, so the result does not depend on
    units, and a direction that the steps do not excite stays where the prior has it. No
    coefficient is negative. Plain Python: for five unknowns, once per step, numpy's calls cost
    more than the sums. A single outlier is cut (``controller.models.outliers``).

    Attributes:
        tail_frac: the measured one of ``StepModel``; None: the prior's.
    """

    def __init__(self, prior: StepModel, weight_steps: float = GUESS_STEPS) -> None:
        self._a = [0.0] * len(_LOWER)
        self._b = [0.0] * FEATURES
        self._n = 0.0
        self._unfitted = 0
        self._outliers = Outliers()
        self.tail_frac: float | None = None
        self.believe(prior, weight_steps)

    def believe(self, prior: StepModel, weight_steps: float = PRIOR_STEPS) -> None:
        """Take another prior; what was seen stays."""
        self._prior_model, self._weight = prior, weight_steps
        values = (prior.c0, prior.c1, prior.c2, prior.c3, prior.c4)
        self._prior = [value * scale for value, scale in zip(values, _SCALE, strict=True)]
        self._solve()

    @property
    def jumped(self) -> bool:
        """Whether the last step was one of several in a row that show another speed."""
        return self._outliers.agreed

    @property
    def prior(self) -> StepModel:
        """What it is shrunk towards."""
        return self._prior_model

    def learn(
        self,
        decodes: int,
        kv: int,
        prefill: int,
        context: int,
        duration_s: float,
        predicted_s: float | None = None,
    ) -> float:
        """Count one step.

        Args:
            predicted_s: what the model makes of it, where that was asked already.

        Returns:
            The seconds that it was counted with: its duration, if that is no outlier.
        """
        if predicted_s is None:
            predicted_s = self.model.predict_s(decodes, kv, prefill, context)
        duration_s = self._outliers.cut(duration_s, predicted_s)
        v = (1.0, decodes / _SCALE[1], kv / _SCALE[2], prefill / _SCALE[3], context / _SCALE[4])
        self._a = [
            ONLINE_FORGET * entry + v[i] * v[j]
            for entry, (i, j) in zip(self._a, _LOWER, strict=True)
        ]
        self._b = [ONLINE_FORGET * b + x * duration_s for b, x in zip(self._b, v, strict=True)]
        self._n = ONLINE_FORGET * self._n + 1
        self._unfitted += 1
        if self._unfitted >= REFIT_STEPS:
            self._solve()
        return duration_s

    def _solve(self) -> None:
        self._unfitted = 0
        n, b = max(self._n, 1.0), self._b
        low = [self._a[begin:end] for begin, end in pairwise(_ROWS)]
        ridge = [self._weight * (row[-1] / n + TINY) for row in low]
        for row, r in zip(low, ridge, strict=True):
            row[-1] += r
        right = [x + r * prior for x, r, prior in zip(b, ridge, self._prior, strict=True)]
        theta = _nonnegative(low, right)
        c0, c1, c2, c3, c4 = (x / scale for x, scale in zip(theta, _SCALE, strict=True))
        prior = self._prior_model
        tail_frac = prior.tail_frac if self.tail_frac is None else self.tail_frac
        self.model = StepModel(c0, c1, c2, c3, c4, prior.sigma_s, tail_frac)


def _nonnegative(a: list[list[float]], b: list[float]) -> list[float]:
    """Solve a x = b with x >= 0, by leaving out what comes out negative.

    Args:
        a: symmetric; its lower triangle, row by row.
    """
    solved = _cholesky(a, b)
    if min(solved) >= 0:
        return solved
    keep = list(range(len(b)))
    x = [0.0] * len(b)
    while keep := [i for i, value in zip(keep, solved, strict=True) if value >= 0]:
        solved = _cholesky([[a[i][j] for j in keep if j <= i] for i in keep], [b[i] for i in keep])
        if min(solved) >= 0:
            for i, value in zip(keep, solved, strict=True):
                x[i] = value
            break
    return x


def _cholesky(a: list[list[float]], b: list[float]) -> list[float]:
    """Solve a x = b for a positive definite a (the ridge sees to that).

    Args:
        a: symmetric; its lower triangle, row by row.
    """
    low: list[list[float]] = []
    x: list[float] = []
    # ``map`` ends with the shorter of two rows: of a product no more than is known by then.
    for entries, value in zip(a, b, strict=True):
        row: list[float] = []
        for entry, above in zip(entries, low, strict=False):
            row.append((entry - sum(map(mul, row, above))) / above[-1])
        left = entries[-1] - sum(map(mul, row, row))
        diagonal = math.sqrt(max(left, TINY * TINY))
        x.append((value - sum(map(mul, row, x))) / diagonal)
        low.append([*row, diagonal])
    for i in reversed(range(len(x))):
        later = [low[k][i] * x[k] for k in range(i + 1, len(x))]
        x[i] = (x[i] - sum(later)) / low[i][i]
    return x


def prefill_room(model: StepModel, decodes: int, kv: int, context: int, limit_s: float) -> float:
    """The longest prefill chunk, tokens, with which a step ends by ``limit_s``; may be negative.

    Args:
        context: tokens of the first prompt of the queue that are computed already.
    """
    room_s = limit_s - model.predict_s(decodes, kv, 0, 0)
    # c4/2 P^2 + (c3 + c4 context) P = room
    half, linear = model.c4 / 2, model.c3 + model.c4 * context
    if room_s <= 0:
        return room_s / linear if linear > 0 else -math.inf
    # Not (sqrt - linear) / c4: where c4 is all but nothing, that subtracts a number from itself.
    root = linear + math.sqrt(linear * linear + 4 * half * room_s)
    return 2 * room_s / root if root > 0 else math.inf
