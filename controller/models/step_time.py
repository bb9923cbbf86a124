"""The step-time model, T = c0 + c1 B + c2 K + c3 P + c4 X + m [P > 0], and its fit.

B decodes, K their KV tokens, P prefill tokens, X prefill tokens x context; T in seconds. A and b
(A = sum v v', b = sum v T, with old steps fading) are sufficient statistics; those of several
replicas add up.

c4 <= c3 / 1000: attention over 1,000 tokens takes no longer than a token's matrix products. Their
flops are 4 h and 24 h^2 a layer, equal at a context of 6 h: 3,456 for a hidden size of 576. A few
prompts hardly tell c3 and c4 apart. The fit has P + X / 1000 instead of X, with a coefficient that
cannot be negative.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from controller.models.arrays import Floats

# Typical sizes of features, so that one ridge suits every coefficient: 100 decodes, 100k tokens of
# KV, 1k prefill tokens, 1M token^2 of prefill attention.
SCALE = np.array([1.0, 1e2, 1e5, 1e3, 1e6, 1.0])
FEATURES = len(SCALE)
# In scaled steps: decides only what the data leaves open. If all steps have prompts, m cannot be
# told from c0.
RIDGE = np.diag([1e-3, 1e-3, 1e-3, 1e-3, 2e-3, 0.1])
RIDGE[3, 4] = RIDGE[4, 3] = 1e-3  # c3 is the sum of two coefficients
MIN_STEPS = 50  # eight for each of six coefficients
# An SLA closer than this to the step of one decode leaves less than a tenth of the engine to other
# requests and prompts, and the spread of steps takes that.
IN_REACH = 1.1
# GPU kernels compute whole tiles, so a step with one token more may take 20% longer. Tokens of a
# step that have one factor, and the number of factors: under an SLA a step has 50 to 300 tokens.
TILE, TILES = 8, 96


@dataclass(frozen=True, slots=True)
class StepStats:
    """Sums over steps, scaled features: ``a`` (6x6, row by row), ``b`` (6), weight, sum of T^2."""

    a: tuple[float, ...] = (0.0,) * (FEATURES * FEATURES)
    b: tuple[float, ...] = (0.0,) * FEATURES
    n: float = 0.0
    tt: float = 0.0

    def __add__(self, other: Self) -> "StepStats":
        return StepStats(
            tuple(x + y for x, y in zip(self.a, other.a, strict=True)),
            tuple(x + y for x, y in zip(self.b, other.b, strict=True)),
            self.n + other.n,
            self.tt + other.tt,
        )

    def __sub__(self, other: Self) -> "StepStats":
        return StepStats(
            tuple(x - y for x, y in zip(self.a, other.a, strict=True)),
            tuple(x - y for x, y in zip(self.b, other.b, strict=True)),
            self.n - other.n,
            self.tt - other.tt,
        )


@dataclass(frozen=True, slots=True)
class StepModel:
    """Seconds per step: fixed, per decode, per KV token, per prefill token, per token x context.

    Args:
        sigma_s: root mean square of the residuals, seconds.
        tail_frac: D over the target of full load, less 1; at least 0, and 0 if there is no target.
        mixed_s: additional time of a step with any prompt token.
        tiles: factors of steps with prompts by their tokens, ``TILE`` each; empty: all are 1.
        graph_tokens, eager_s: a step of more tokens than the CUDA graphs is launched kernel by
            kernel and takes at least ``eager_s``; 0: there is no such bound.
    """

    c0: float
    c1: float
    c2: float
    c3: float
    c4: float
    sigma_s: float
    tail_frac: float = 0.0
    mixed_s: float = 0.0
    graph_tokens: int = 0
    eager_s: float = 0.0
    tiles: tuple[float, ...] = ()

    @classmethod
    def of(cls, costs: Sequence[float], sigma_s: float) -> Self:
        """From c0 to c4 and ``mixed_s``."""
        c0, c1, c2, c3, c4, mixed_s = costs
        return cls(c0, c1, c2, c3, c4, sigma_s, mixed_s=mixed_s)

    @property
    def costs(self) -> tuple[float, ...]:
        """c0 to c4 and ``mixed_s``, in the order of the features."""
        return self.c0, self.c1, self.c2, self.c3, self.c4, self.mixed_s

    @property
    def one_decode_s(self) -> float:
        """T of a step of one decode without KV, seconds."""
        return self.c0 + self.c1

    def feasible(self, itl_s: float) -> bool:
        """Whether D leaves more than a tenth beyond the step of one decode."""
        return itl_s >= IN_REACH * self.one_decode_s

    def predict_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """T of a step with these features, seconds."""
        alone_s = self.c0 + self.c1 * decodes + self.c2 * kv
        if not prefill:
            return alone_s
        least_s = self.eager_s if self.eager(decodes, prefill) else 0.0
        took_s = alone_s + self.mixed_s + self.c3 * prefill + self.c4 * context
        tile = int(decodes + prefill) // TILE
        return max(took_s * (self.tiles[tile] if tile < len(self.tiles) else 1.0), least_s)

    def eager(self, decodes: float, prefill: float) -> bool:
        """Whether such a step has more tokens than CUDA graphs were captured for."""
        return 0 < self.graph_tokens < decodes + prefill


def fitted_features(rows: Floats) -> Floats:
    """Scaled rows with P + X / 1000 instead of X; shape (n, FEATURES). ``rows`` may be wider."""
    v: Floats = rows[:, :FEATURES] / SCALE
    v[:, 4] += v[:, 3]
    return v


def fit(stats: StepStats) -> StepModel | None:
    """Ridge least squares with no negative coefficient.

    None if the steps do not determine the model: fewer than ``MIN_STEPS``, or all of about one
    size, so that the fixed part cannot be separated.
    """
    if stats.n < MIN_STEPS:
        return None
    a = np.array(stats.a).reshape(FEATURES, FEATURES)
    b = np.array(stats.b)
    if not _varied(a, stats.n):
        return None
    c = nonnegative(a + RIDGE, b)
    residual = max(stats.tt - 2 * c @ b + c @ a @ c, 0.0) / stats.n
    c[3] += c[4]
    c0, c1, c2, c3, c4, mixed_s = (c / SCALE).tolist()
    return StepModel(c0, c1, c2, c3, c4, math.sqrt(residual), mixed_s=mixed_s)


def _varied(a: Floats, n: float) -> bool:
    """Whether decodes or prefill tokens spread over at least a tenth of their mean."""
    means, squares = a[0] / n, np.diag(a) / n
    deviation = np.sqrt(np.maximum(squares - means**2, 0.0))
    return bool(np.any(deviation[[1, 3]] > 0.1 * np.maximum(means[[1, 3]], 1e-3)))


def nonnegative(a: Floats, b: Floats) -> Floats:
    """Solve a c = b with c >= 0, by leaving out negative ones (at most 6 unknowns)."""
    keep: Sequence[int] = range(len(b))
    c = np.zeros(len(b))
    while keep:
        index = np.array(keep)
        solved = np.linalg.solve(a[np.ix_(index, index)], b[index])
        if (solved >= 0).all():
            c[index] = solved
            break
        keep = [k for k, x in zip(keep, solved, strict=True) if x >= 0]
    return c
