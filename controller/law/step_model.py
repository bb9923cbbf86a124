"""The step-time model of one engine: weighted least squares over its rows, with a prior.

    T = c0 + c1 B + c2 K + c3 P + c4 X + m [P > 0]

``controller.models.step_time`` has the letters and the sums. The prior is the fit of the other
replicas of the group; before there is one, a guess from the SLA. The ridge counts the prior as a
number of steps, scaled by the size of each feature, so the result does not depend on units.
"""

import math
from dataclasses import replace

import numpy as np

from controller.law.rows import CONTEXT, DECODES, KV, PREFILL, TOOK_S, StepRows
from controller.models.arrays import Bools, Floats, Ints
from controller.models.step_time import (
    SCALE,
    TILE,
    TILES,
    StepModel,
    StepStats,
    fitted_features,
    nonnegative,
)

FORGET = 0.995  # weight of a row over that of the next one: 200 rows, 10 s at 50 ms
PRIOR_STEPS, GUESS_STEPS = 5.0, 0.02  # weight of the group's model, and of the guess
TINY = 1e-6  # ridge of a feature that was never seen: it keeps its prior
CLIP, CUTS, LEAST_RMSE = 2.5, 3, 0.02  # RMSE of log T: cut residuals, iterations, lower bound
ROUNDS, SPEED_ROUND = 6, 3  # iterations of the fit; the one that estimates each row's speed
SPEED_STEPS, EXCEPT = 7, 1  # a phase: these rows in a row, but for one, are slower or faster
FASTEST, SLOWEST = 1 / 3, 3.0  # bounds of the speed factor
USUAL, NOISE = 1.2, 1.5  # no phase: a factor of up to 1.2, or 1.5 RMSE of log T
# In a step that takes five times what the model explains a kernel was compiled, or another process
# started. Such rows are left out if they are at most 1% of all rows, or three. The first two steps
# of an engine are always left out, as there are no others to compare them with.
STRANGE, STRANGE_SHARE, STRANGE_ROWS = 5.0, 0.01, 3
FAR = 4.0  # factor of STRANGE while the model is a guess
FOREIGN = math.log(2.0)  # residual of log T without weight: an image's encoder ran, say
FIRST_STEPS = 2
# Factors of tiles are used if they explain this share of the residuals' variance. A factor needs so
# many rows, and so many standard errors are taken off it.
EXPLAINED, TILE_ROWS, TILE_ERRORS = 0.5, 2, 2.0
# A row further from the fit, or of another speed, tells of something else than tiles. If fewer rows
# with prompts than this share are near it, that would be taken for tiles in the others.
TILE_MOST, TILE_NEAR = math.log(1.4), 0.95
EAGER_STEPS = 16  # steps beyond CUDA graphs; the lower quartile of them is the launch time
LAUNCHED = 1.15  # launch times: a longer step was limited by the card


def guess(itl_s: float) -> StepModel:
    """The model before the first step: users set an SLA that their engine meets with headroom.

    An empty step takes half of the SLA; 256 decodes or 512 prompt tokens fill the rest.
    """
    return StepModel(0.5 * itl_s, itl_s / 512, 0.0, itl_s / 1024, 0.0, 0.05 * itl_s)


def scaled(model: StepModel, speed: float) -> StepModel:
    """The model of an engine whose steps take ``speed`` times as long."""
    costs = [cost * speed for cost in model.costs]
    return replace(
        StepModel.of(costs, model.sigma_s),
        tail_frac=model.tail_frac,
        graph_tokens=model.graph_tokens,
        eager_s=model.eager_s,
        tiles=model.tiles,
    )


def predict_s(model: StepModel, table: Floats) -> Floats:
    """Predicted step times, shape (n,), of rows, shape (n, 4 or more); launches not included."""
    c0, c1, c2, c3, c4, mixed_s = model.costs
    prompts = table[:, PREFILL] > 0
    costs = np.array([c1, c2, c3, c4])
    took_s: Floats = c0 + table[:, :TOOK_S] @ costs + mixed_s * prompts
    if model.tiles:
        took_s *= np.where(prompts, np.append(model.tiles, 1.0)[_tile(table)], 1.0)
    return took_s


def alone_s(model: StepModel, table: Floats) -> Floats:
    """Predicted step times of the decodes alone, shape (n,)."""
    took_s: Floats = model.c0 + model.c1 * table[:, DECODES] + model.c2 * table[:, KV]
    return took_s


class Fit:
    """A step-time model with what it was made of.

    A row has less weight the further it is from the fit, and none if it took more than twice or
    less than half of what the fit predicts. A phase in which whole steps take longer (another
    tenant, a lower clock) tells nothing of the ratio of the costs. After some iterations the rows
    of a phase are therefore divided by its speed factor, the factor that six of seven rows in a row
    have in common. The engine finds the factor of now by itself (``SpeedFactor``). What
    the tokens of a step explain of the residuals is taken out of the rows in the same way.

    Args:
        rows: as measured; the first two steps of an engine are left out.
        prior: the model of the group or a guess, which counts as ``prior_steps`` steps.
        graph: tokens of the largest captured CUDA graph; 0: none.

    Attributes:
        model: the fit, at the usual speed.
        usual: a speed factor between its inverse and this is noise.
        stats: sums of the rows, for the model of the group.
        counted: which rows are in any sum, shape (n,).
        speeds: the speed factor of each row, shape (n,).
    """

    def __init__(self, rows: StepRows, prior: StepModel, prior_steps: float, graph: int) -> None:
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
        # A step that takes far longer than the prior explains would spoil the first iteration.
        ratio = took_s / np.maximum(predict_s(prior, table), 1e-9)
        self.counted &= ~_few(ratio > FAR * STRANGE * np.median(ratio) if len(table) else launched)
        known = self.counted & ~launched
        self.usual = USUAL
        self.speeds: Floats = np.ones(len(table))
        trust, at_usual_s = np.ones(len(table)), took_s
        tiles: tuple[float, ...] = ()
        tile, prompts, factor = _tile(table), table[:, PREFILL] > 0, np.ones(len(table))
        for turn in range(ROUNDS):
            used = np.where(known, weight, 0.0)
            each = used * trust
            a, b = v.T @ (v * each[:, None]), v.T @ (each * at_usual_s / factor)
            costs = _solved(a, b, float(each.sum()), prior, prior_steps)
            predicted_s = np.maximum(features @ costs, 1e-9) * factor
            residual = np.log(np.maximum(took_s, 1e-9) / predicted_s)
            strange = _few(known & (residual > math.log(STRANGE)))
            self.counted, known = self.counted & ~strange, known & ~strange
            if turn == SPEED_ROUND and len(table) >= SPEED_STEPS:
                self.usual = max(USUAL, math.exp(NOISE * _rmse(residual[known])))
                self.speeds = _speeds(residual, self.usual)
                at_usual_s = took_s / self.speeds
            residual -= np.log(self.speeds)
            off = np.abs(residual)
            least = max(_deviation(off[known]), LEAST_RMSE)
            trust = np.minimum(1.0, least / np.maximum(off, 1e-9))
            if turn:
                trust[off > FOREIGN] = 0.0
            if turn >= SPEED_ROUND:  # before it, tiles would explain phases
                plain = residual + np.log(factor)
                near = known & prompts & (self.speeds == 1) & (np.abs(plain) <= TILE_MOST)
                tiles, factor = (), np.ones(len(table))
                if near.sum() >= TILE_NEAR * (known & prompts).sum():
                    tiles = _tile_factors(tile, plain, np.where(near, trust, 0.0))
                if tiles:
                    factor = np.where(prompts, np.append(tiles, 1.0)[tile], 1.0)
        n = float(used.sum())
        level = float(used @ self.speeds) / n if n else 1.0
        most = CLIP * max(_rmse(residual[known]), LEAST_RMSE)
        cut_s = predicted_s * np.exp(np.clip(residual, -most, most))
        error_s = math.sqrt(float(used @ (cut_s - predicted_s) ** 2) / n) if n else prior.sigma_s
        model = StepModel.of(costs.tolist(), error_s)
        self.model = replace(model, graph_tokens=graph, eager_s=eager_s, tiles=tiles)
        a, b = v.T @ (v * used[:, None]), v.T @ (used * cut_s)
        tt = float(used @ (cut_s * cut_s)) * level**2
        self.stats = StepStats(tuple(a.ravel().tolist()), tuple((level * b).tolist()), n, tt)


def _tile(table: Floats) -> Ints:
    tiles: Ints = np.minimum((table[:, DECODES] + table[:, PREFILL]) // TILE, TILES).astype(int)
    return tiles


def _tile_factors(tile: Ints, residual: Floats, weight: Floats) -> tuple[float, ...]:
    """The factor of each tile, by the log residuals of its rows; none if they tell of noise.

    Tiles without rows lie between their neighbours; beyond the last one its factor holds.
    """
    weight = np.where(tile < TILES, weight, 0.0)
    rows = np.bincount(tile, weight, TILES)[:TILES]
    seen = rows >= TILE_ROWS
    if not seen.any():
        return ()
    rows, there = rows[seen], seen.nonzero()[0]
    mean = np.bincount(tile, weight * residual, TILES)[there] / rows
    square = np.bincount(tile, weight * residual**2, TILES)[there] / rows
    within = float((rows * (square - mean**2)).sum()) / max(float((rows - 1).sum()), 1.0)
    mean -= float(rows @ mean) / float(rows.sum())
    if within > (1 - EXPLAINED) * (within + float(rows @ mean**2) / float(rows.sum())):
        return ()
    error = TILE_ERRORS**2 * within / rows
    sure = mean * np.maximum(1 - error / np.maximum(mean**2, 1e-12), 0.0)
    return tuple(np.exp(np.interp(np.arange(TILES), there, sure)).tolist())


def _few(strange: Bools) -> Bools:
    """The rows of the mask; none of them if they are too many to be outliers."""
    few = strange.sum() <= max(STRANGE_SHARE * len(strange), STRANGE_ROWS)
    return strange if few else np.zeros_like(strange)


def _speeds(ratio: Floats, usual: float) -> Floats:
    """The speed factor of each row, by the log ratios of the row and its neighbours; 1 if noise."""
    padded = np.pad(ratio, SPEED_STEPS // 2, mode="edge")
    near = np.sort(np.lib.stride_tricks.sliding_window_view(padded, SPEED_STEPS), axis=1)
    common = np.maximum(near[:, EXCEPT], 0.0) + np.minimum(near[:, -1 - EXCEPT], 0.0)
    factor = np.exp(np.clip(common, math.log(FASTEST), math.log(SLOWEST)))
    speeds: Floats = np.where(np.abs(common) > math.log(usual), factor, 1.0)
    return speeds


def _features(table: Floats) -> Floats:
    columns = [np.ones(len(table)), *table[:, [DECODES, KV, PREFILL, CONTEXT]].T]
    return np.column_stack([*columns, table[:, PREFILL] > 0]).astype(float)


def _deviation(off: Floats) -> float:
    """The standard deviation of absolute residuals, estimated by their median."""
    return 1.4826 * float(np.median(off)) if len(off) else 0.0


def _rmse(residual: Floats) -> float:
    """Root mean square; residuals are cut at ``CLIP`` times it, by iteration."""
    rmse = _deviation(np.abs(residual))
    for _ in range(CUTS if len(residual) else 0):
        most = CLIP * max(rmse, LEAST_RMSE)
        rmse = float(np.sqrt(np.mean(np.clip(residual, -most, most) ** 2)))
    return rmse


def _launches(table: Floats, graph: int, prior: StepModel) -> tuple[float, Bools]:
    """The launch time of steps beyond the CUDA graphs, and which rows it determined."""
    beyond = (table[:, PREFILL] > 0) & (table[:, DECODES] + table[:, PREFILL] > graph)
    newest = table[beyond, TOOK_S][-EAGER_STEPS:]
    if not len(newest):
        return 0.0, beyond
    eager_s = float(np.sort(newest)[(len(newest) - 1) // 4])
    took_s = table[:, TOOK_S]
    on_card = predict_s(prior, table) <= took_s
    return eager_s, beyond & on_card & (took_s <= LAUNCHED * eager_s)


def _solved(a: Floats, b: Floats, n: float, prior: StepModel, prior_steps: float) -> Floats:
    """Costs, shape (FEATURES,), none negative, with a prior that counts as ``prior_steps`` steps.

    c4 <= c3 / 1000, as in ``step_time``: the fifth unknown belongs to P / 1000 + X / 10^6.
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
