"""What one engine is asked for and gives: rates over the last minute of its steps."""

import math

import numpy as np
from numpy.typing import NDArray

from controller.models.requests import Ints

MEMORY_S = 60.0  # of steps; what waits is to be computed in as long
MOST_PROMPTS = 64  # whose lengths are looked at
KNOWN_PROMPTS = 5.0  # of fewer, what they had in the prefix cache is not looked at
TYPICAL_PROMPT = 256  # tokens, before any request was seen


class Demand:
    """Rates in busy time: a second without a step is none."""

    def __init__(self) -> None:
        self._seconds = self._prefill = self._decodes = self._started = 0.0
        self._waiting = 0
        # Those that ran last, and what had been computed and had started by then.
        self._seen: tuple[Ints, float, float] | None = None
        self._prompts: NDArray[np.float64] = np.array([float(TYPICAL_PROMPT)])

    def observe(self, decodes: int, prefill: int, duration_s: float, started: int = 0) -> None:
        """Count a step, and how many requests had their first chunk in it."""
        keep = math.exp(-duration_s / MEMORY_S)
        self._seconds = keep * self._seconds + duration_s
        self._prefill = keep * self._prefill + prefill
        self._decodes = keep * self._decodes + decodes
        self._started = keep * self._started + started

    def see(self, prompts: Ints, waiting: int) -> None:
        """Take the lengths of those that run, shape (n,), and how many wait."""
        self._waiting = waiting
        if len(prompts):
            self._seen = prompts, self._prefill, self._started

    @property
    def prompts(self) -> NDArray[np.float64]:
        """Tokens to compute of prompts that run, shape (n,), n >= 1."""
        if self._seen is not None:  # looked at when it is asked for: seen before every step
            prompts, prefill, started = self._seen
            few, self._seen = prompts[:MOST_PROMPTS].astype(float), None
            # A share of prompt tokens is computed: the prefix cache has the others.
            computed = prefill / started / float(few.mean()) if started >= KNOWN_PROMPTS else 1.0
            self._prompts = np.maximum(few * min(computed, 1.0), 1.0)
        return self._prompts

    @property
    def prefill_per_s(self) -> float:
        """Prompt tokens/s to compute: those that came, and those that wait."""
        if not self._seconds:
            return 0.0
        waiting = self._waiting * float(self.prompts.mean()) if self._waiting else 0.0
        return self._prefill / self._seconds + waiting / MEMORY_S

    @property
    def decodes_per_prefill(self) -> float:
        """Tokens generated for each prompt token computed."""
        return self._decodes / self._prefill if self._prefill else 0.0
