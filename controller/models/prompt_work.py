"""Cost of arriving prompts and of the decodes that follow, by a step-time model."""

import math

import numpy as np

from controller.models.arrays import Floats
from controller.models.chunked_prefill import Prompts
from controller.models.demand import Demand
from controller.models.step_time import TILE, StepModel

WHOLE = np.array([0.5, 0.9, 1.0])  # quantiles of prompt lengths
WHOLE_ROOM = 1.2  # batch over its mean when a whole prompt is planned
BIN_RATIO = 1.1  # prompts are grouped if their lengths are within this ratio
LEAST_LEFT = 0.02  # least share of time for the fixed part of steps


class PromptWork:
    """The cost of the demand by a model."""

    def __init__(self, model: StepModel, demand: Demand, kv_per_decode: float) -> None:
        self._model, self._demand = model, demand
        self._decode_s = model.c1 + model.c2 * kv_per_decode
        self._lengths = np.sort(demand.prompts)
        bins = np.rint(np.log(self._lengths) / math.log(BIN_RATIO)).astype(int)
        counts = np.bincount(bins)
        there = counts.nonzero()[0]
        # Every length is kept, however rare: a few long prompts may be most of the work.
        self._tokens = np.bincount(bins, self._lengths)[there] / counts[there]
        self._shares = counts[there] / len(self._lengths)
        self._mean = float(self._shares @ self._tokens)
        self._token_s = max(model.c3 + model.c4 * self._mean / 2, 1e-12)
        # Of a prompt token and the decodes that follow it.
        self._both_s = self._token_s + self._decode_s * demand.decodes_per_prefill

    def carried_per_s(self, step_s: float) -> float:
        """Prompt tokens/s at which all steps take ``step_s``, or end with the CUDA graphs."""
        model = self._model
        fixed_s = model.c0 + model.mixed_s
        prompt = max(step_s - fixed_s, 0.0) / self._both_s
        if step_s < model.eager_s:
            each = 1 + self._demand.decodes_per_prefill
            prompt = min(prompt, model.graph_tokens / each)
        return prompt / (fixed_s + prompt * self._both_s) if prompt else 0.0

    def decodes_s(self, prefill_per_s: float) -> float:
        """s0 of the mean batch, whose size does not depend on the target (Little's law)."""
        decodes = self._decode_s * prefill_per_s * self._demand.decodes_per_prefill
        left = max(1 - self._token_s * prefill_per_s - decodes, LEAST_LEFT)
        return max(self._model.c0 * (1 + decodes / left), 1e-9)

    def prompts(self, prefill_per_s: float) -> Prompts:
        """The prompts at this rate of prompt tokens/s."""
        per_s = prefill_per_s / self._mean
        decodes_s = self.decodes_s(prefill_per_s)
        graph_s, eager_s = math.inf, self._model.eager_s
        decodes = (decodes_s - self._model.c0) / max(self._decode_s, 1e-12)
        if eager_s:
            graph_s = max(self._model.graph_tokens - decodes, 0.0) * self._token_s
        ends = np.arange(1.0, len(self._model.tiles) + 1) * TILE - 1 - decodes
        factors = np.array(self._model.tiles)[ends > 0]
        tokens: Floats = np.asarray(ends[ends > 0], dtype=np.float64)
        alone_s = decodes_s + self._model.mixed_s
        return Prompts(
            self._tokens,
            self._shares,
            per_s,
            self._token_s,
            self._model.mixed_s,
            decodes_s,
            graph_s,
            eager_s,
            (tokens, factors * (alone_s + self._token_s * tokens)),
        )

    def whole_s(self, prompts: Prompts) -> Floats:
        """Times of steps that compute a whole prompt, for the quantiles ``WHOLE``."""
        c0 = self._model.c0
        beside_s = c0 + self._model.mixed_s + WHOLE_ROOM * (prompts.decodes_s - c0)
        longest = self._lengths[(WHOLE * (len(self._lengths) - 1)).astype(int)]
        return np.asarray(beside_s + self._token_s * longest)
