"""Recorded steps in a profile file: their format, and the line that is fitted to them.

``brimful record`` writes them; ``--profile FILE`` and the emulated accelerator replay them.
"""

import math
from itertools import combinations
from typing import Annotated, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from controller.config import Block
from controller.models.arrays import Floats
from replicas.profiles.profile import MOST_KV_TOKENS, LinearCost
from replicas.profiles.recorded_time import Recording

LEAST_STEPS = 50  # fewer give neither a mean nor a deviation
MOST_STEPS = 1_000_000
MOST_US = 10**9
LEAST_US = 1.0  # shortest step, even if the clock's resolution is coarser
ROUNDS = 10  # iterations of the fit: each weighs steps by the predictions of the previous one
EXACT = 1e-5  # a negligible relative error: durations are in microseconds
OUTLIER = 2.0  # times its prediction: longer steps count as this long

# An error names a column's first wrong value, not all of them.
of_all_steps = Field(min_length=LEAST_STEPS, max_length=MOST_STEPS, fail_fast=True)
Column = Annotated[list[Annotated[int, Field(ge=0, le=10**15)]], of_all_steps]
Microseconds = Annotated[list[Annotated[int, Field(ge=0, le=MOST_US)]], of_all_steps]


class RecordedSteps(Block):
    """Columns with one value per step, in the order of time.

    Args:
        decodes, kv_tokens, prefill_tokens, prefill_context: as in ``records.StepSample``.
        duration_us: its ``duration_s``: from the previous output to this one while busy.
    """

    decodes: Column
    kv_tokens: Column
    prefill_tokens: Column
    prefill_context: Column
    duration_us: Microseconds

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        steps = len(self.duration_us)
        for name, column in self:
            if len(column) != steps:
                raise ValueError(f"{name} has {len(column)} values for {steps} of duration_us")
        return self

    def features(self) -> Floats:
        """Shape (steps, 6): 1, whether there is a prompt, and B, K, P, X of ``LinearCost``."""
        prefill = np.array(self.prefill_tokens, float)
        columns = (
            np.ones_like(prefill),
            prefill > 0,
            np.array(self.decodes, float),
            np.array(self.kv_tokens, float),
            prefill,
            np.array(self.prefill_context, float),
        )
        return np.stack(columns, axis=1)

    def measured_s(self) -> Floats:
        """Shape (steps,)."""
        return np.maximum(np.array(self.duration_us, float), LEAST_US) * 1e-6


class RecordedEntry(Block):
    """A recording, and its engine's settings."""

    machine: str = ""
    model: str = ""
    versions: dict[str, str] = {}
    load: str = ""
    kv_capacity_tokens: int = Field(gt=0, le=MOST_KV_TOKENS)
    max_num_seqs: PositiveInt
    max_num_batched_tokens: PositiveInt
    steps: RecordedSteps

    def engine_defaults(self) -> tuple[int, int]:
        """``max_num_seqs`` and ``max_num_batched_tokens``."""
        return self.max_num_seqs, self.max_num_batched_tokens

    def fitted(self) -> tuple[LinearCost, Recording]:
        """The line through the recorded steps, and the run relative to its predictions."""
        features, measured_s = self.steps.features(), self.steps.measured_s()
        coefficients = fit_line(features, measured_s)
        cost = LinearCost(*coefficients[[0, 2, 3, 4, 5, 1]].tolist())
        return cost, Recording(features @ coefficients, measured_s)


def fit_line(features: Floats, measured_s: Floats) -> Floats:
    """Coefficients c >= 0 that minimise sum(((y - c f) / (c f))^2) over the steps.

    y is the measured time, at most OUTLIER times the predicted one, so that a few long pauses do
    not tilt the line. Errors are relative to the prediction, because the noise of measurements
    would shorten predictions. The first coefficient is at least a microsecond.

    Args:
        features: shape (steps, n), the first column all ones, the last tokens x context.
        measured_s: shape (steps,), above 0.

    Returns:
        Shape (n,), seconds.
    """
    scale = features.max(axis=0, initial=1e-9)
    coefficients = np.zeros(features.shape[1])
    predicted_s, within_s = measured_s, measured_s
    for _ in range(ROUNDS):
        weighted = features / scale / predicted_s[:, None]
        coefficients = _nonnegative(weighted, within_s / predicted_s) / scale
        coefficients[0] = max(coefficients[0], LEAST_US * 1e-6)
        predicted_s = features @ coefficients
        within_s = np.minimum(measured_s, OUTLIER * predicted_s)
    return coefficients


def _nonnegative(features: Floats, y: Floats) -> Floats:
    """The c >= 0 with the least |y - features c|^2; the last one is used only if it helps.

    Whole prompts of few lengths do not show whether tokens or tokens x context cost time, and the
    noise of a few steps would decide: a small chunk could then cost nothing. So tokens x context
    count only if n ln(|y - features c|^2) falls by ln n (BIC).
    """
    n, count = features.shape
    a, b, whole = features.T @ features, features.T @ y, float(y @ y)
    a[np.diag_indices(count)] *= 1 + 1e-12  # columns may be alike, or 0
    a[np.diag_indices(count)] += 1e-300
    best, least = np.zeros(count), math.inf
    for size in range(1, count + 1):
        for kept in map(list, combinations(range(count), size)):
            solved = np.linalg.solve(a[np.ix_(kept, kept)], b[kept])
            error = max(whole - float(b[kept] @ solved), n * EXACT**2)
            score = n * math.log(error) + (count - 1 in kept) * math.log(n)
            if (solved >= 0).all() and score < least:
                best, least = np.zeros(count), score
                best[kept] = solved
    return best
