"""The step-time model of one engine: least squares over its last rows, shrunk towards a prior.

    T = c0 + c1 B + c2 K + c3 P + c4 X + m [P > 0]

``controller.models.step_time`` has the letters and the sums. The prior is the fit of the other
replicas of the group, or, before there is one, a guess from the SLA. The ridge weighs it as so many
steps in each feature's own size, so that the result does not depend on units.
"""

import math
from dataclasses import replace

import numpy as np

from controller.law.rows import CONTEXT, DECODES, KV, PREFILL, TOOK_S, StepRows
from controller.models.arrays import Bools, Floats
from controller.models.step_time import (
    SCALE,
    StepModel,
    StepStats,
    fitted_features,
    nonnegative,
)

FORGET = 0.995  # a row: the last 200 count, 10 s at 50 ms
PRIOR_STEPS, GUESS_STEPS = 5.0, 0.02  # weight of the group's model, and of the guess
TINY = 1e-6  # of a scaled step: a feature that was never seen keeps its prior
CLIP, LEAST_RMSE = 2.5, 0.02  # residuals of log T are cut at so many RMSE: a pause tells nothing
ROUNDS = 3
SPEED_STEPS = 7  # whose median says how the engine's speed differs from the model's
FASTEST, SLOWEST = 1 / 3, 3.0  # bounds of that factor
USUAL, NOISE = 1.2, 1.5  # no change of speed: up to a fifth, or 1.5 RMSE of log T
# A step that took so many times what the others explain compiled a kernel, or another process was
# starting. No sum has it, unless more than ``STRANGE_SHARE`` of the rows are like that. The first
# steps of an engine count for nothing, as there are none to compare them with.
STRANGE, STRANGE_SHARE = 5.0, 0.01
FAR = 4.0  # times as much, by a model that is a guess
FIRST_STEPS = 2
EAGER_STEPS = 16  # beyond graphs that are remembered; the lower quartile of them is the launch
LAUNCHED = 1.15  # times the launch: what took longer was kept by the card


def guess(itl_s: float) -> StepModel:
    """Before the first step: an SLA is set where a model meets it, with room.

    Half of it goes for an empty step; 256 decodes or 512 prompt tokens fill the rest.
    """
    return StepModel(0.5 * itl_s, itl_s / 512, 0.0, itl_s / 1024, 0.0, 0.05 * itl_s)


def scaled(model: StepModel, speed: float) -> StepModel:
    """The model of an engine whose steps take so many times as long."""
    costs = [cost * speed for cost in model.costs]
    return replace(
        StepModel.of(costs, model.sigma_s),
        tail_frac=model.tail_frac,
        graph_tokens=model.graph_tokens,
        eager_s=model.eager_s,
    )


def predict_s(model: StepModel, table: Floats) -> Floats:
    """What steps take by a model, shape (n,) of rows (n, 4 or more); without launches."""
    c0, c1, c2, c3, c4, mixed_s = model.costs
    prompts = table[:, PREFILL] > 0
    costs = np.array([c1, c2, c3, c4])
    took_s: Floats = c0 + table[:, :TOOK_S] @ costs + mixed_s * prompts
    return took_s


def alone_s(model: StepModel, table: Floats) -> Floats:
    """What their decodes alone take by a model, shape (n,)."""
    took_s: Floats = model.c0 + model.c1 * table[:, DECODES] + model.c2 * table[:, KV]
    return took_s


class Fit:
    """A step-time model with what it was made of.

    An engine that another tenant or a lower clock slows down takes longer for all of a step. Such a
    phase says nothing of what a decode or a prompt token costs beside another, so its rows are
    taken at the usual speed: their factor is the median, over seven rows, of what they took over
    what the model before says. The engine knows that factor by itself (``SpeedFactor``).

    Args:
        rows: as they are; the first steps of an engine count for nothing.
        prior: the model of the group or a guess, weighed as ``prior_steps`` steps.
        graph: tokens of the largest step that CUDA graphs were captured for; 0: of none.
        before: the model that the engine goes by; None: it is a guess.

    Attributes:
        model: the fit, at the usual speed.
        speed: how many times as long as that the last rows took.
        usual: a factor closer to 1 than this, or its inverse, is noise.
        stats: sums of the rows, for the group.
        counted: which rows any sum may have, shape (n,).
        speeds: of each row, shape (n,).
    """

    def __init__(
        self,
        rows: StepRows,
        prior: StepModel,
        prior_steps: float,
        graph: int,
        before: StepModel | None = None,
    ) -> None:
        table = rows.table
        features = _features(table)
        v = fitted_features(features)
        weight = FORGET ** np.arange(len(table) - 1, -1, -1.0)
        took_s = table[:, TOOK_S]
        launched = np.zeros(len(table), dtype=bool)
        eager_s = 0.0
        if graph:
            eager_s, launched = _launches(table, graph, prior)
        self.counted: Bools = (rows.numbers >= FIRST_STEPS) & (took_s > 0) & np.isfinite(took_s)
        self.usual = USUAL
        self.speeds: Floats = np.ones(len(table))
        if before is not None and len(table) >= SPEED_STEPS:
            ratio = np.log(np.maximum(took_s, 1e-9) / np.maximum(predict_s(before, table), 1e-9))
            self.usual = max(USUAL, math.exp(NOISE * _rmse(ratio[self.counted])))
            self.speeds = _speeds(ratio, self.usual)
        self.speed = float(self.speeds[-1]) if len(table) else 1.0
        at_usual_s = took_s / self.speeds
        # One that takes far longer than the prior's shape explains would bend the first fit.
        ratio_s = at_usual_s / np.maximum(predict_s(prior, table), 1e-9)
        self.counted &= ~_few(
            ratio_s > FAR * STRANGE * np.median(ratio_s) if len(table) else launched
        )
        known = self.counted & ~launched
        cut_s = at_usual_s
        for _ in range(ROUNDS):
            used = np.where(known, weight, 0.0)
            n = float(used.sum())
            a, b = v.T @ (v * used[:, None]), v.T @ (used * cut_s)
            costs = _solved(a, b, n, prior, prior_steps)
            predicted_s = np.maximum(features @ costs, 1e-9)
            residual = np.log(np.maximum(at_usual_s, 1e-9) / predicted_s)
            most = CLIP * max(_rmse(residual[known]), LEAST_RMSE)
            cut_s = predicted_s * np.exp(np.clip(residual, -most, most))
            strange = known & (residual > np.log(STRANGE))
            if 0 < strange.sum() <= max(STRANGE_SHARE * len(table), 1):
                self.counted, known = self.counted & ~strange, known & ~strange
                cut_s = took_s  # what was cut was cut by a model with these in it
        model = StepModel.of(costs.tolist(), prior.sigma_s)
        self.model = replace(model, graph_tokens=graph, eager_s=eager_s)
        level = float(used @ self.speeds) / n if n else 1.0
        tt = float(used @ (cut_s * cut_s)) * level**2
        self.stats = StepStats(tuple(a.ravel().tolist()), tuple((level * b).tolist()), n, tt)


def _few(strange: Bools) -> Bools:
    """The same, or none of them if they are too many to be strange."""
    few = strange.sum() <= max(STRANGE_SHARE * len(strange), 1)
    return strange if few else np.zeros_like(strange)


def _speeds(ratio: Floats, usual: float) -> Floats:
    """The speed factor of each row: the median of its log ratio and its neighbours', if unusual."""
    half = SPEED_STEPS // 2
    padded = np.pad(ratio, half, mode="edge")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(padded, SPEED_STEPS), axis=1)
    factor = np.exp(np.clip(middle, math.log(FASTEST), math.log(SLOWEST)))
    speeds: Floats = np.where(np.abs(middle) > math.log(usual), factor, 1.0)
    return speeds


def _features(table: Floats) -> Floats:
    columns = [np.ones(len(table)), *table[:, [DECODES, KV, PREFILL, CONTEXT]].T]
    return np.column_stack([*columns, table[:, PREFILL] > 0]).astype(float)


def _rmse(residual: Floats) -> float:
    """Root mean square with what is beyond ``CLIP`` times it cut, found by iteration."""
    if not len(residual):
        return 0.0
    rmse = 1.4826 * float(np.median(np.abs(residual)))
    for _ in range(ROUNDS):
        most = CLIP * max(rmse, LEAST_RMSE)
        rmse = float(np.sqrt(np.mean(np.clip(residual, -most, most) ** 2)))
    return rmse


def _launches(table: Floats, graph: int, prior: StepModel) -> tuple[float, Bools]:
    """What a step beyond the CUDA graphs takes at least, and which rows waited for that."""
    beyond = (table[:, PREFILL] > 0) & (table[:, DECODES] + table[:, PREFILL] > graph)
    newest = table[beyond, TOOK_S][-EAGER_STEPS:]
    if not len(newest):
        return 0.0, beyond
    eager_s = float(np.sort(newest)[(len(newest) - 1) // 4])
    took_s = table[:, TOOK_S]
    on_card = predict_s(prior, table) <= took_s
    return eager_s, beyond & on_card & (took_s <= LAUNCHED * eager_s)


def _solved(a: Floats, b: Floats, n: float, prior: StepModel, prior_steps: float) -> Floats:
    """Costs with the prior weighed as so many steps; shape (FEATURES,), none negative.

    c4 <= c3 / 1000 as in ``step_time``: the fifth unknown goes with P / 1000 + X / 10^6.
    """
    sizes = np.diag(a).copy()
    sizes[4] += sizes[3] - 2 * a[4, 3]  # of X alone
    ridge = prior_steps * (np.maximum(sizes, 0.0) / max(n, 1.0) + TINY)
    before = np.array(prior.costs) * SCALE
    before[4] = min(before[4], before[3])
    left, right = a + np.diag(ridge), b + ridge * before
    left[3, 4] += ridge[3]
    left[4, 3] += ridge[3]
    left[4, 4] += ridge[3]
    right[4] += ridge[3] * before[3]
    c = nonnegative(left, right)
    c[3] += c[4]
    costs: Floats = c / SCALE
    return costs
