"""An error of our own costs a step its limits, and not the engine its life.

The Governor is asked in the middle of vLLM's ``schedule()``, where an exception ends EngineCore and
with it every request (decision 32).
"""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec

from controller.policies.base import EMPTY_BATCH, ReadBatch
from controller.records import EngineState, ReplicaReport, StepLimits, StepSample
from replicas.governor import Governor

logger = logging.getLogger(__name__)

SAY_AGAIN_S = 60.0
P = ParamSpec("P")


class FailOpenGovernor(Governor):
    """A Governor that outlives its errors.

    The cap and the token budget of the last step go on to hold, for a lease; where errors go on,
    vLLM's own limits hold after it. Each step asks anew. What could not be counted is not.

    Attributes:
        faults: calls that ended with an error, since the engine started.
    """

    def __init__(self, *args: Any, now_s: float, **kwargs: Any) -> None:
        super().__init__(*args, now_s=now_s, **kwargs)
        self.faults = 0
        self._said_s = -math.inf
        self._clock_s = now_s  # of the last step
        self._failing_since_s: float | None = None

    def before_step(
        self, state: EngineState, now_s: float, read_batch: ReadBatch = lambda: EMPTY_BATCH
    ) -> StepLimits:
        self._clock_s = now_s
        try:
            limits = super().before_step(state, now_s, read_batch)
        except Exception:
            self._failed("the limits of a step")
            if self._failing_since_s is None:
                self._failing_since_s = now_s
            own = StepLimits(self.engine.max_num_seqs, self.engine.max_num_batched_tokens)
            held_s = now_s - self._failing_since_s
            if not self.enforced or not 0 <= held_s < self.config.lease_s:
                return own
            held = StepLimits(self._last_step.max_running, self._last_step.token_budget)
            return self._kept_safe(held, state.running)
        self._failing_since_s = None
        return limits

    def after_step(self, sample: StepSample, prefills: int) -> None:
        self._try("a step's measures", super().after_step, sample, prefills)

    def arrived(self, prompt_tokens: int | None = None) -> None:
        self._try("a request that arrived", super().arrived, prompt_tokens)

    def preempted(self) -> None:
        self._try("a preemption", super().preempted)

    def resumed(self, gap_s: float, number: int = 0) -> None:
        self._try("a request that resumed", super().resumed, gap_s, number)

    def first_token(self, ttft_s: float, agreed_s: float | None = None) -> None:
        self._try("a first token", super().first_token, ttft_s, agreed_s)

    def finished(self, input_tokens: int, output_tokens: int) -> None:
        self._try("a request that finished", super().finished, input_tokens, output_tokens)

    def aborted(self, output_tokens: int) -> None:
        self._try("a request that was aborted", super().aborted, output_tokens)

    def report(self, *args: Any, **kwargs: Any) -> ReplicaReport:
        return replace(super().report(*args, **kwargs), faults=self.faults)

    def _try(self, what: str, count: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            count(*args, **kwargs)
        except Exception:
            self._failed(what)

    def _failed(self, what: str) -> None:
        self.faults += 1
        if self._clock_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = self._clock_s
            logger.exception(
                "An error of Brimful's own, in %s; the engine goes on (%d so far)",
                what,
                self.faults,
            )
