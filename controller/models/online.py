"""The step-time model one engine goes by from step to step: fast, and never without an answer.

The fit of ``controller.models.step_time`` forgets slowly, so that a group can pool it. This one
remembers the last 200 steps, and takes what they do not tell from a prior: the group's model or,
before there is one, a guess from the SLA.

Pauses are clipped (``controller.models.residuals``), but for a chunk that is larger than those that
are remembered: that says what larger chunks cost. After a change of the engine's speed everything
learned before is rescaled at once; the fit alone would take 200 steps.

What the launch of a step beyond vLLM's CUDA graphs takes (``StepModel.eager_s``) is the lower
quartile of what the last such steps took; it fades while there are none, so that one is tried
again. The fit learns nothing from a step that waited for its launch.
"""

import math
from collections import deque
from dataclasses import replace
from itertools import pairwise
from operator import mul

from controller.models.residuals import LEAST_CHANGE, REGIME_STEPS, Residuals
from controller.models.step_time import FEATURES, SCALE, StepModel

ONLINE_FORGET = 0.995  # per step: 200 steps are remembered, 10 s at 50 ms
REFIT_STEPS = 8  # a fit takes as long as the bookkeeping of a step or two
PRIOR_STEPS = 5.0  # what the group's model weighs, in steps of this engine
TINY = 1e-6  # of a scaled step: a feature that was never seen keeps its prior
GUESS_STEPS = 0.2  # ... and the guess: the first steps overrule it

LARGER = 1.5  # times the largest chunk that is remembered

EAGER_STEPS = 16  # beyond graphs that are remembered; the lower quartile of them is the launch
LAUNCHED = 1.15  # times the launch: what took longer was kept by the card
EAGER_FADE = 2e-5  # of the launch, per other step with a prompt
FIRST_FADE = 0.01  # ... after the first beyond graphs, which may have been a pause

_SCALE: list[float] = SCALE.tolist()
# Of a symmetric matrix the lower triangle is kept, row by row, and where its rows begin.
_LOWER = [(i, j) for i in range(FEATURES) for j in range(i + 1)]
_ROWS = [i * (i + 1) // 2 for i in range(FEATURES + 1)]


def guess(itl_s: float) -> StepModel:
    """Before the first step: an SLA is set where a model meets it, with room.

    Half of it goes for an empty step; 256 decodes or 512 prompt tokens fill the rest.
    """
    return StepModel(0.5 * itl_s, itl_s / 512, 0.0, itl_s / 1024, 0.0, 0.05 * itl_s)


class OnlineStepModel:
    """Least squares over the last steps, shrunk towards a prior (information form).

    Solves (A + R) beta = b + R beta0 with A and b forgotten at ``ONLINE_FORGET`` per step. R
    weighs the prior as so many steps in each feature's own size, so the result does not depend on
    units, and a direction that the steps do not excite stays where the prior has it. No
    coefficient is negative. Plain Python: for six unknowns numpy's calls cost more than the sums,
    and with cold caches twice as much. A step is a row until the next fit, for the same reason.

    Attributes:
        model: what it has learned.
        prior: what it is shrunk towards, as it was given.
    """

    model: StepModel

    def __init__(self, first_guess: StepModel) -> None:
        self._a = [0.0] * len(_LOWER)
        self._b = [0.0] * FEATURES
        self._n = 0.0
        self._rows: list[tuple[tuple[float, ...], float]] = []  # features and seconds, not in A yet
        self._residuals = Residuals()
        self._largest, self._wrong = 0.0, False
        self._graph_tokens = self._eager_steps = 0
        self._eager_s = 0.0
        self._newest_eager_s: deque[float] = deque(maxlen=EAGER_STEPS)
        self.set_prior(first_guess, GUESS_STEPS)

    def captured(self, graph_tokens: int) -> None:
        """CUDA graphs were captured for steps of up to so many tokens."""
        self._graph_tokens = graph_tokens
        self._solve()

    def set_prior(self, prior: StepModel, weight_steps: float = PRIOR_STEPS) -> None:
        """Take another prior; what was seen stays.

        One that is off by ``LEAST_CHANGE`` on average is of another speed of the engine: a group
        forgets slowly.
        Then all of its costs are taken to be off by as much.
        """
        self.prior, self._weight = prior, weight_steps
        self._prior = [value * scale for value, scale in zip(prior.costs, _SCALE, strict=True)]
        self._prior[4] = min(self._prior[4], self._prior[3])
        self._fold()
        off = self._took_over(self._prior)
        if self._n >= REGIME_STEPS and abs(math.log(off)) > LEAST_CHANGE:
            self._prior = [cost * off for cost in self._prior]
        self._solve()

    def _took_over(self, costs: list[float]) -> float:
        """What the steps so far took over what they cost by these; 1: not known."""
        c0, c1, c2, c3, c4, mixed_s = costs
        fitted = (c0, c1, c2, c3 - c4, c4, mixed_s)
        cost_s = sum(self._a[row] * cost for row, cost in zip(_ROWS, fitted, strict=False))
        off = self._b[0] / cost_s if cost_s > 0 else 0.0
        return off if 0 < off < math.inf else 1.0

    def learn(self, decodes: int, kv: int, prefill: int, context: int, duration_s: float) -> bool:
        """Count one step. Whether it shows that the engine's speed has changed."""
        changed = False
        if prefill and self._graph_tokens:
            self._learn_eager(decodes, prefill, duration_s)
        predicted_s = self.model.predict_s(decodes, kv, prefill, context)
        launched = prefill and self._waited(decodes, kv, prefill, context, duration_s)
        if predicted_s > 0 and 0 < duration_s / predicted_s < math.inf:
            factor = self._residuals.regime_change(duration_s, predicted_s, prefill > 0)
            changed = factor != 1.0
            if changed:
                self._rescale(factor)
                predicted_s *= factor
            known_s = self._residuals.clipped(duration_s, predicted_s, prefill > 0)
            self._wrong = abs(math.log(duration_s / predicted_s)) > LEAST_CHANGE
            if prefill <= LARGER * self._largest:
                duration_s = known_s
        if launched:
            return changed
        if prefill:
            self._largest = max(ONLINE_FORGET * self._largest, float(prefill))
        v = (
            1.0,
            decodes / _SCALE[1],
            kv / _SCALE[2],
            prefill / _SCALE[3],
            prefill / _SCALE[3] + context / _SCALE[4],  # c4 <= c3 / 1000, as in ``step_time``
            float(prefill > 0),
        )
        self._rows.append((v, duration_s))
        if self._wrong or len(self._rows) >= REFIT_STEPS:
            self._solve()
        return changed

    def _learn_eager(self, decodes: int, prefill: int, duration_s: float) -> None:
        if not self.model.eager(decodes, prefill):
            self._eager_s *= 1 - max(EAGER_FADE, FIRST_FADE / max(self._eager_steps, 1) ** 2)
            return
        self._eager_steps += 1
        self._newest_eager_s.append(duration_s)
        self._eager_s = sorted(self._newest_eager_s)[(len(self._newest_eager_s) - 1) // 4]
        self.model = replace(self.model, eager_s=self._eager_s)

    def _waited(self, decodes: int, kv: int, prefill: int, context: int, duration_s: float) -> bool:
        """Whether a step took as long as its launch, so that it says nothing of the card."""
        if not self.model.eager(decodes, prefill):
            return False
        on_card_s = replace(self.model, eager_s=0.0).predict_s(decodes, kv, prefill, context)
        return on_card_s <= duration_s <= LAUNCHED * self._eager_s

    def _fold(self) -> None:
        """Take the rows into A and b, the oldest first."""
        for v, duration_s in self._rows:
            self._a = [
                ONLINE_FORGET * entry + v[i] * v[j]
                for entry, (i, j) in zip(self._a, _LOWER, strict=True)
            ]
            self._b = [ONLINE_FORGET * b + x * duration_s for b, x in zip(self._b, v, strict=True)]
            self._n = ONLINE_FORGET * self._n + 1
        self._rows.clear()

    def _rescale(self, factor: float) -> None:
        """Take all steps so far to have lasted so many times as long."""
        self._fold()
        self._b = [x * factor for x in self._b]
        self._prior = [x * factor for x in self._prior]
        self._solve()

    def _solve(self) -> None:
        self._fold()
        n, b = max(self._n, 1.0), self._b
        low = [self._a[begin:end] for begin, end in pairwise(_ROWS)]
        sizes = [row[-1] for row in low]
        sizes[4] += sizes[3] - 2 * low[4][3]  # of X alone
        ridge = [self._weight * (max(size, 0.0) / n + TINY) for size in sizes]
        for row, r in zip(low, ridge, strict=True):
            row[-1] += r
        right = [x + r * prior for x, r, prior in zip(b, ridge, self._prior, strict=True)]
        low[4][3] += ridge[3]  # c3 is the sum of both
        low[4][4] += ridge[3]
        right[4] += ridge[3] * self._prior[3]
        beta = _nonnegative(low, right)
        beta[3] += beta[4]
        costs = [x / scale for x, scale in zip(beta, _SCALE, strict=True)]
        self.model = replace(
            StepModel.of(costs, self.prior.sigma_s),
            graph_tokens=self._graph_tokens,
            eager_s=self._eager_s,
        )


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


def prefill_room(model: StepModel, decodes: int, kv: int, context: int, target_s: float) -> float:
    """The longest prefill chunk, tokens, with which a step ends by ``target_s``; may be negative.

    Args:
        context: tokens of the prompt that are computed already (``ChunkSizer.chunk``).
    """
    room_s = target_s - model.mixed_s - model.predict_s(decodes, kv, 0, 0)
    room = _tokens_in(model, context, room_s)
    if not model.eager(decodes, room):
        return room
    return room if target_s >= model.eager_s else model.graph_tokens - decodes


def _tokens_in(model: StepModel, context: int, room_s: float) -> float:
    # c4/2 P^2 + (c3 + c4 context) P = room
    half, linear = model.c4 / 2, model.c3 + model.c4 * context
    if room_s <= 0:
        return room_s / linear if linear > 0 else -math.inf
    # Not (sqrt - linear) / c4: where c4 is all but nothing, that subtracts a number from itself.
    root = linear + math.sqrt(linear * linear + 4 * half * room_s)
    return 2 * room_s / root if root > 0 else math.inf
