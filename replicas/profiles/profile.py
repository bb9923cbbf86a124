"""How long an accelerator takes for a step: profiles for the replay and the emulated accelerator.

All take the features of ``controller.records.StepSample``: B decodes, K tokens in KV memory that
they attend to, P prefill tokens, X prefill tokens x context.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol

import numpy as np

from replicas.profiles.recorded_time import Recording

MOST_KV_TOKENS = 100_000_000  # a replay keeps an object for each block


class StepCost(Protocol):
    """A model of a step's time."""

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """Seconds that a step with these features takes."""
        ...


@dataclass(frozen=True, slots=True)
class LinearCost:
    """T = fixed + B per_decode + K per_kv + P per_prefill + X per_context, all in seconds.

    A step with a prompt (P > 0) takes ``per_mixed_s`` more.
    """

    fixed_s: float
    per_decode_s: float
    per_kv_s: float = 0.0
    per_prefill_s: float = 0.0
    per_context_s: float = 0.0
    per_mixed_s: float = 0.0

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        return (
            self.fixed_s
            + self.per_decode_s * decodes
            + self.per_kv_s * kv
            + self.per_prefill_s * prefill
            + self.per_context_s * context
            + self.per_mixed_s * (prefill > 0)
        )


@dataclass(frozen=True, slots=True)
class TableCost:
    """T = dense(B + P) + K per_kv + X per_context, with ``dense`` measured at some token counts.

    A step with a prompt (P > 0) takes ``mixed_s`` more.

    Between two measured counts the time is interpolated; beyond the last it is extrapolated from
    the last two. Padding to CUDA-graph sizes is not added: vLLM captures every 8 or 16 tokens, and
    tables are measured every 32 or more, so padding would change a step by a percent.

    Args:
        tokens: measured token counts, ascending.
        dense_s: seconds of everything but attention at these counts.
        per_kv_s: seconds per KV token read by a decode.
        per_context_s: seconds per prefill token x context.
    """

    tokens: tuple[int, ...]
    dense_s: tuple[float, ...]
    per_kv_s: float
    per_context_s: float
    mixed_s: float = 0.0

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        n = decodes + prefill
        right = min(max(bisect_left(self.tokens, n), 1), len(self.tokens) - 1)
        (t0, t1), (s0, s1) = self.tokens[right - 1 : right + 1], self.dense_s[right - 1 : right + 1]
        dense_s = s0 + (s1 - s0) * (max(n, self.tokens[0]) - t0) / (t1 - t0)
        mixed_s = self.mixed_s * (prefill > 0)
        return dense_s + self.per_kv_s * kv + self.per_context_s * context + mixed_s


@dataclass(frozen=True, slots=True)
class Launch:
    """How long the CPU is busy with launching a step with prompt tokens, seconds.

    If steps are scheduled ahead, the previous step's output is processed only after that.

    Args:
        graph_s, eager_s: of a step of at most ``graph_tokens`` tokens, and of a larger step.
    """

    graph_s: float = 0.0
    eager_s: float = 0.0
    graph_tokens: int = 0

    def step_s(self, decodes: int, prefill: int) -> float:
        """Seconds; launches of pure decode steps are hidden behind the previous step."""
        if not prefill:
            return 0.0
        return self.graph_s if decodes + prefill <= self.graph_tokens else self.eager_s


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One accelerator with one model on it.

    Args:
        kv_tokens: size of its KV memory.
        max_num_seqs, max_num_batched_tokens: vLLM's own defaults on this card, or the recorded
            engine's settings.
        recording: recorded deviations of a real engine's steps from ``cost``; None: none.
        kv_read_frac: as in ``EngineLimits``.
    """

    name: str
    source: str
    kv_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    cost: StepCost
    recording: Recording | None = field(default=None, repr=False, compare=False)
    launch: Launch = Launch()
    kv_read_frac: float = 0.0

    def step_s(self, decodes: float, kv: float, prefill: float, context: float) -> float:
        """Seconds that a step with these features takes, undisturbed."""
        return self.cost.step_s(decodes, kv, prefill, context)

    def with_kv_tokens(self, kv_tokens: int | None) -> "StepProfile":
        """The same accelerator with another KV memory; None leaves it."""
        return self if kv_tokens is None else replace(self, kv_tokens=kv_tokens)


class StepNoise:
    """Factors on step times: lognormal, mean 1, seeded.

    Args:
        cv: coefficient of variation of a step's time; 0 is no noise.
    """

    def __init__(self, cv: float, seed: int) -> None:
        self._sigma = math.sqrt(math.log1p(cv * cv))
        self._rng = np.random.default_rng(seed)

    def factor(self) -> float:
        """The next step's factor."""
        if not self._sigma:
            return 1.0
        return math.exp(self._sigma * self._rng.standard_normal() - self._sigma**2 / 2)


def ascending(values: tuple[int, ...]) -> bool:
    """Whether each value is above the one before it."""
    return all(a < b for a, b in pairwise(values))
