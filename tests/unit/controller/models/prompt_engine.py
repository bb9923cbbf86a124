"""An engine that computes Poisson prompts in chunks of a step-time target, in virtual time."""

import heapq
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from controller.models.demand import Demand
from controller.models.online import prefill_room
from controller.models.step_target import REFRESH_STEPS, StepTarget
from controller.models.step_time import StepModel

D = 0.05
MODEL = StepModel(c0=0.02, c1=2e-4, c2=0.0, c3=1e-4, c4=0.0, sigma_s=0.0, mixed_s=0.002)
MOST_TOKENS = 8192  # of a step
STARVED_STEPS = 100  # ... has 16 prompt tokens after so many without any


@dataclass
class Seen:
    """Tokens of decodes, those of them after more than D, and what was decided when."""

    tokens: int = 0
    late: int = 0
    full_s: list[float] = field(default_factory=list)  # what steps with prompts left over took
    targets_s: list[float] = field(default_factory=list)
    prompts: int = 0  # that were computed

    @property
    def late_share(self) -> float:
        return self.late / self.tokens

    @property
    def lets_late_share(self) -> float:
        """The share of steps with a target beyond D."""
        return float(np.mean(np.array(self.targets_s) > 1.001 * D))


class PromptEngine:
    """Steps of c0 + c1 B + c3 P + mixed, times lognormal noise, and pauses of the host.

    Args:
        per_s: prompts/s, of ``tokens`` tokens each, with ``outputs`` decodes after it.
    """

    def __init__(
        self, per_s: float, tokens: int = 300, outputs: int = 100, percentile: float = 99.0
    ) -> None:
        self.per_s, self.model, self.cv = per_s, MODEL, 0.0
        self.pause_s = self.pauses = 0.0  # how long, and in which share of steps
        self.demand = Demand()
        self.target = StepTarget(D, percentile, self.demand)
        self._tokens, self._outputs = tokens, outputs
        self._waiting: deque[int] = deque()  # tokens left of each prompt
        self._ends: list[int] = []  # of decodes, by the number of the step
        self._starved, self._steps, self._rng = 0, 0, np.random.default_rng(1)

    def run(self, seconds: float) -> Seen:
        seen = Seen()
        while seconds > 0:
            seconds -= self._step(seen)
        return seen

    def _step(self, seen: Seen) -> float:
        model, target = self.model, self.target
        decodes = len(self._ends)
        room = prefill_room(model, decodes, 0, 0, target.target_s)
        here = sum(self._waiting)
        chunk = min(int(max(room, 0)) if decodes else MOST_TOKENS, here, MOST_TOKENS)
        self._starved = self._starved + 1 if here and not chunk else 0
        if self._starved >= STARVED_STEPS:
            chunk = min(16, here)
        predicted_s = model.predict_s(decodes, 0, chunk, 0)
        noise = float(np.exp(self.cv * self._rng.standard_normal() - self.cv**2 / 2))
        took_s = predicted_s * noise + self.pause_s * (self._rng.random() < self.pauses)
        seen.tokens += decodes
        seen.late += decodes * (took_s > target.itl_s)
        seen.targets_s.append(target.target_s)
        if 0 < chunk < here:
            seen.full_s.append(predicted_s)
        self._serve(chunk, seen)
        self._waiting += [self._tokens] * self._rng.poisson(self.per_s * took_s)
        self.demand.see(max(len(self._waiting) - 1, 0))
        self.demand.observe(decodes, chunk, took_s, [self._tokens])
        alone_s = model.predict_s(decodes, 0, 0, 0)
        target.observe(decodes, predicted_s, alone_s, took_s, prompts=chunk > 0)
        if decodes and (target.due or self._starved % REFRESH_STEPS == REFRESH_STEPS - 1):
            target.refresh(model, 0.0)
        return took_s

    def _serve(self, chunk: int, seen: Seen) -> None:
        self._steps += 1
        while self._ends and self._ends[0] <= self._steps:
            heapq.heappop(self._ends)
        while chunk:
            used = min(chunk, self._waiting[0])
            self._waiting[0] -= used
            chunk -= used
            if not self._waiting[0]:
                self._waiting.popleft()
                heapq.heappush(self._ends, self._steps + self._outputs)
                seen.prompts += 1

    @property
    def waiting(self) -> int:
        """Prompts."""
        return len(self._waiting)
