"""An error of our own costs a step its limits, and not the engine its life.

The Governor is asked in the middle of vLLM's ``schedule()``, where an exception ends EngineCore and
with it every request (decision 32).
"""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from operator import index
from typing import Any, ParamSpec

from controller.policies.base import EMPTY_BATCH, ReadBatch
from controller.records import BatchLimits, EngineState, ReplicaReport, StepLimits, StepSample
from replicas.engine.governor import Governor

logger = logging.getLogger(__name__)

SAY_AGAIN_S = 60.0
P = ParamSpec("P")


class FailOpenGovernor(Governor):
    """A Governor that outlives its errors.

    Where the limits of a step fail, the cap and the token budget of the last one go on to hold, for
    a lease; where errors go on, vLLM's own limits hold after it. Each step asks anew. Where the
    local loop fails, its last limits hold as long, then none but what is configured. What could not
    be counted is not.

    Attributes:
        own_errors: calls that ended with an error, since the engine started.
    """

    def __init__(self, *args: Any, now_s: float, **kwargs: Any) -> None:
        self.own_errors = 0
        self._said_s: dict[str, float] = {}  # when the log last had each kind
        self._clock_s = now_s  # of the last step
        self._step_fails_since_s: float | None = None
        self._local_fails_since_s: float | None = None
        super().__init__(*args, now_s=now_s, **kwargs)

    def before_step(
        self, state: EngineState, now_s: float, read_batch: ReadBatch = lambda: EMPTY_BATCH
    ) -> StepLimits:
        self._clock_s = now_s
        try:
            limits = super().before_step(state, now_s, read_batch)
        except Exception:
            self._failed("the limits of a step")
            if self._step_fails_since_s is None:
                self._step_fails_since_s = now_s
            if not self.enforced or self._past_a_lease(self._step_fails_since_s):
                return StepLimits(self.engine.max_num_seqs, self.engine.max_num_batched_tokens)
            held = StepLimits(self._last_step.max_running, self._last_step.token_budget)
            return self._kept_safe(held, state.running)
        self._step_fails_since_s = None
        return limits

    def _kept_safe(self, asked: StepLimits, running: int) -> StepLimits:
        # What is no number of requests or tokens would end the engine later, in vLLM's own code.
        index(asked.max_running)
        index(asked.token_budget)
        if asked.skipped and not 0 <= min(asked.skipped) <= max(asked.skipped) < running:
            raise ValueError(f"skipped: {asked.skipped} are not all places of {running} requests")
        return super()._kept_safe(asked, running)

    def _decide_locally(self, state: EngineState, now_s: float, read_batch: ReadBatch) -> None:
        try:
            super()._decide_locally(state, now_s, read_batch)
        except Exception:
            self._failed("the local control loop")
            if self._local_fails_since_s is None:
                self._local_fails_since_s = now_s
            if self._past_a_lease(self._local_fails_since_s):  # the cap of long ago is no better
                cap = self.config.upper_bound(self.engine.max_num_seqs)
                on, lease_s = self.config.enforce, self.config.lease_s
                self._take(BatchLimits(lease_s, cap, None, "start", enforce=on))
            return
        self._local_fails_since_s = None

    def _past_a_lease(self, since_s: float) -> bool:
        return not 0 <= self._clock_s - since_s < self.config.lease_s

    def attempt(self, what: str, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception:
            self._failed(what)

    def after_step(self, sample: StepSample, prefills: int) -> None:
        self.attempt("a step's measures", super().after_step, sample, prefills)

    def arrived(self, prompt_tokens: int | None = None, *, for_another: bool = False) -> None:
        arrived = super().arrived
        self.attempt("a request that arrived", arrived, prompt_tokens, for_another=for_another)

    def preempted(self) -> None:
        self.attempt("a preemption", super().preempted)

    def resumed(self, gap_s: float, number: int = 0) -> None:
        self.attempt("a request that resumed", super().resumed, gap_s, number)

    def first_token(self, ttft_s: float, agreed_s: float | None = None) -> None:
        self.attempt("a first token", super().first_token, ttft_s, agreed_s)

    def finished(self, input_tokens: int, output_tokens: int) -> None:
        self.attempt("a request that finished", super().finished, input_tokens, output_tokens)

    def aborted(self, output_tokens: int) -> None:
        self.attempt("a request that was aborted", super().aborted, output_tokens)

    def report(self, *args: Any, **kwargs: Any) -> ReplicaReport:
        return replace(super().report(*args, **kwargs), own_errors=self.own_errors)

    def _failed(self, what: str) -> None:
        self.own_errors += 1
        if self._clock_s - self._said_s.get(what, -math.inf) >= SAY_AGAIN_S:
            self._said_s[what] = self._clock_s
            logger.exception(
                "An error of Brimful's own, in %s; the engine goes on (%d so far)",
                what,
                self.own_errors,
            )
