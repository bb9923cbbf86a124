"""The step-time model one engine goes by from step to step: fast, and never without an answer.

The fit of ``controller.models.step_time`` forgets slowly, so that a group can pool it. This one
remembers the last 200 steps, and takes what they do not tell from a prior: the group's model or,
before there is one, a guess from the SLA.

Pauses are clipped (``controller.models.residuals``), but for a chunk that is larger than those that
are remembered: that says what larger chunks cost. After a regime change everything learned before
is rescaled at once; the fit alone would take 200 steps.

What the launch of a step beyond vLLM's CUDA graphs takes (``StepModel.eager_s``) is what the
shorter of the last such steps took; it fades while there are none, so that one is tried again. The
fit learns nothing from a step that waited for its launch.
"""

import math
from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controller.models.residuals import LEAST_CHANGE, REGIME_STEPS, Residuals
from controller.models.step_time import FEATURES, SCALE, StepModel, nonnegative

ONLINE_FORGET = 0.995  # per step: 200 steps are remembered, 10 s at 50 ms
REFIT_STEPS = 8  # a fit takes as long as the bookkeeping of a step or two
PRIOR_STEPS = 5.0  # what the group's model weighs, in steps of this engine
TINY = 1e-6  # of a scaled step: a feature that was never seen keeps its prior
GUESS_STEPS = 0.2  # ... and the guess: the first steps overrule it
MOST_S = 1e9  # of a step, where the clock jumped: sums of more would overflow

LARGER = 1.5  # times the largest chunk that is remembered

EAGER_STEPS = 16  # beyond graphs that are remembered; a quarter of them is taken to be shorter
LAUNCHED = 1.15  # times the launch: what took longer was kept by the card
EAGER_FADE = 2e-5  # of the launch, per other step with a prompt
FIRST_FADE = 0.01  # ... after the first beyond graphs, which may have been a pause

_SCALE: list[float] = SCALE.tolist()
# What steps weigh that came one after the other, the newest last.
_FADED = ONLINE_FORGET ** np.arange(REFIT_STEPS - 1, -1, -1)[:, None]
# Costs by what is solved for: c3 is what it is beyond c4, and c4.
_COSTS = np.eye(FEATURES)
_COSTS[3, 4] = 1.0


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
    coefficient is negative, nor c4 above c3 (``controller.models.step_time``). A step is a row
    until the next fit: what is done in each of them runs with cold caches.

    Attributes:
        model: what it has learned.
    """

    model: StepModel

    def __init__(self, prior: StepModel, weight_steps: float = GUESS_STEPS) -> None:
        self._sums: NDArray[np.float64] = np.zeros((FEATURES, FEATURES + 1))  # A, b beside it
        self._rows: list[tuple[float, ...]] = []  # steps that are not in it yet
        self._residuals = Residuals()
        self._largest, self._wrong = 0.0, False
        self._graph_tokens = self._eager_steps = 0
        self._eager_s = 0.0
        self._newest_eager_s: deque[float] = deque(maxlen=EAGER_STEPS)
        self.set_prior(prior, weight_steps)

    def captured(self, graph_tokens: int) -> None:
        """CUDA graphs were captured for steps of up to so many tokens."""
        self._graph_tokens = graph_tokens
        self._solve()

    def set_prior(self, prior: StepModel, weight_steps: float = PRIOR_STEPS) -> None:
        """Take another prior; what was seen stays.

        One that is off by ``LEAST_CHANGE`` on average is of another regime: a group forgets slowly.
        Then all of its costs are taken to be off by as much.
        """
        self._given, self._weight = prior, weight_steps
        known = np.array(prior.costs) * SCALE
        known[4] = min(known[4], known[3])
        self._fold()
        off = self._took_over(known)
        if self._sums[0, 0] >= REGIME_STEPS and abs(math.log(off)) > LEAST_CHANGE:
            known *= off
        self._prior = np.column_stack([np.eye(FEATURES), known])
        self._solve()

    def _took_over(self, costs: NDArray[np.float64]) -> float:
        """What the steps so far took over what they cost by these; 1: not known."""
        cost_s = float(self._sums[0, :FEATURES] @ costs)
        off = float(self._sums[0, FEATURES]) / cost_s if cost_s > 0 else 0.0
        return off if 0 < off < math.inf else 1.0

    @property
    def prior(self) -> StepModel:
        """What it is shrunk towards, as it was given."""
        return self._given

    def learn(self, decodes: int, kv: int, prefill: int, context: int, duration_s: float) -> bool:
        """Count one step. Whether it shows another regime."""
        changed = launched = False
        duration_s = min(duration_s, MOST_S)
        if prefill and self._graph_tokens:
            launched = self._learn_eager(decodes, kv, prefill, context, duration_s)
        predicted_s = self.model.predict_s(decodes, kv, prefill, context)
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
        _, d, k, p, x, _ = _SCALE
        features = decodes / d, kv / k, prefill / p, context / x
        self._rows.append((1.0, *features, float(prefill > 0), duration_s))
        if self._wrong or len(self._rows) >= REFIT_STEPS:
            self._solve()
        return changed

    def _learn_eager(
        self, decodes: int, kv: int, prefill: int, context: int, duration_s: float
    ) -> bool:
        """Whether a step took as long as its launch, so that it says nothing of the card."""
        if not self.model.eager(decodes, prefill):
            self._eager_s *= 1 - max(EAGER_FADE, FIRST_FADE / max(self._eager_steps, 1) ** 2)
            return False
        self._eager_steps += 1
        self._newest_eager_s.append(duration_s)
        self._eager_s = sorted(self._newest_eager_s)[(len(self._newest_eager_s) - 1) // 4]
        self.model = replace(self.model, eager_s=self._eager_s)
        on_card_s = replace(self.model, eager_s=0.0).predict_s(decodes, kv, prefill, context)
        return on_card_s <= duration_s <= LAUNCHED * self._eager_s

    def _rescale(self, factor: float) -> None:
        """Take all steps so far to have lasted so many times as long."""
        self._fold()
        self._sums[:, FEATURES] *= factor
        self._prior[:, FEATURES] *= factor
        self._solve()

    def _fold(self) -> None:
        """Take the rows into the sums, the oldest first."""
        if n := len(self._rows):
            rows = np.array(self._rows)
            self._rows.clear()
            self._sums *= ONLINE_FORGET**n
            self._sums += (rows[:, :FEATURES] * _FADED[-n:]).T @ rows

    def _solve(self) -> None:
        self._fold()
        costs = self._prior[:, FEATURES]
        if steps := float(self._sums[0, 0]):
            ridge = self._sums.diagonal() * (self._weight / max(steps, 1.0)) + self._weight * TINY
            sums = _COSTS.T @ (self._sums + ridge[:, None] * self._prior)
            costs = _COSTS @ nonnegative(sums[:, :FEATURES] @ _COSTS, sums[:, FEATURES])
        c0, c1, c2, c3, c4, mixed_s = (costs / SCALE).tolist()
        self.model = StepModel(
            c0,
            c1,
            c2,
            c3,
            c4,
            self._given.sigma_s,
            mixed_s=mixed_s,
            graph_tokens=self._graph_tokens,
            eager_s=self._eager_s,
        )


def prefill_room(model: StepModel, decodes: int, kv: int, context: int, limit_s: float) -> float:
    """The longest prefill chunk, tokens, with which a step ends by ``limit_s``; may be negative.

    Args:
        context: tokens of the first prompt of the queue that are computed already.
    """
    room_s = limit_s - model.mixed_s - model.predict_s(decodes, kv, 0, 0)
    room = _tokens_in(model, context, room_s)
    if not model.eager(decodes, room):
        return room
    return room if limit_s >= model.eager_s else model.graph_tokens - decodes


def _tokens_in(model: StepModel, context: int, room_s: float) -> float:
    # c4/2 P^2 + (c3 + c4 context) P = room
    half, linear = model.c4 / 2, model.c3 + model.c4 * context
    if room_s <= 0:
        return room_s / linear if linear > 0 else -math.inf
    # Not (sqrt - linear) / c4: where c4 is all but nothing, that subtracts a number from itself.
    root = linear + math.sqrt(linear * linear + 4 * half * room_s)
    return 2 * room_s / root if root > 0 else math.inf
