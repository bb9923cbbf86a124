"""What one engine is asked for and gives: rates over the last minute of its steps."""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from controller.models.arrays import Floats

MEMORY_S = 60.0  # of steps; what waits is to be computed in as long
PROMPTS_KEPT = 256  # one in fifty may be most of the work
TYPICAL_PROMPT = 256  # tokens, before any request was seen


class Demand:
    """Rates in busy time: a second without a step is none."""

    def __init__(self) -> None:
        self._seconds = self._prefill = self._decodes = 0.0
        self._waiting = 0
        # Of the requests that started last, not of those that run: short prompts with long answers
        # are most of a batch, and long prompts with short answers most of the work.
        self._lengths: deque[int] = deque(maxlen=PROMPTS_KEPT)

    def observe(
        self, decodes: int, prefill: int, duration_s: float, started: Sequence[int] = ()
    ) -> None:
        """Count a step.

        Args:
            started: the prompt tokens that each request had to compute which had its first chunk.
        """
        keep = math.exp(-duration_s / MEMORY_S)
        self._seconds = keep * self._seconds + duration_s
        self._prefill = keep * self._prefill + prefill
        self._decodes = keep * self._decodes + decodes
        self._lengths.extend(started)

    def see(self, waiting: int) -> None:
        """So many requests wait."""
        self._waiting = waiting

    @property
    def prompts(self) -> Floats:
        """Tokens to compute of the prompts that started last, shape (n,), n >= 1."""
        return np.array(self._lengths or [TYPICAL_PROMPT], dtype=float)

    @property
    def prefill_per_s(self) -> float:
        """Prompt tokens/s that steps computed, and waiting requests x mean prompt / 60 s."""
        if not self._seconds:
            return 0.0
        waiting = self._waiting * float(self.prompts.mean()) if self._waiting else 0.0
        return self._prefill / self._seconds + waiting / MEMORY_S

    @property
    def decodes_per_prefill(self) -> float:
        """Tokens generated for each prompt token computed."""
        return self._decodes / self._prefill if self._prefill else 0.0
