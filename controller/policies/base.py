"""What a policy is: two pure halves, the fleet half in the controller, the step half in the engine.

A policy decides; the Governor and the scheduler enforce. Bounds, drain and lease are theirs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from controller.config import BatchingConfig
from controller.models.lengths import LengthMoments
from controller.models.lookahead import LiveRequests, live_requests
from controller.models.step_time import StepModel
from controller.records import (
    BatchLimits,
    EngineLimits,
    EngineState,
    Reason,
    ReplicaReport,
    StepLimits,
    StepSample,
)


@dataclass(frozen=True, slots=True)
class Pool:
    """What all replicas of a group know together.

    Args:
        replicas: how many were heard within the last leases.
        lengths: moments of the lengths of their finished requests.
        model: step-time model of all their steps; None where not identified yet.
    """

    replicas: int = 0
    lengths: LengthMoments = field(default_factory=LengthMoments)
    model: StepModel | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A cap on running requests, perhaps a token budget, and what set them."""

    max_running: int
    reason: Reason
    token_budget: int | None = None


class Policy(Protocol):
    """The fleet half. It may keep state per replica, rebuilt from reports."""

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        """The limits of one replica, decided at each of its reports."""
        ...

    def forget(self, replica_id: str) -> None:
        """Drop what is kept of a replica that is gone."""
        ...


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """The requests that run, and the first n of those that may start, each in order of service.

    Args:
        held_elsewhere_tokens: KV memory of requests that do not run: loads under way, sessions that
            wait for their next input, ended requests that a connector still reads. Of one that may
            start it is ``shared``, too.
    """

    running: LiveRequests
    waiting: Callable[[int], LiveRequests]
    held_elsewhere_tokens: int = 0


_NONE = live_requests([], [], [], [])
NOBODY = LiveBatch(_NONE, lambda n: _NONE)
Live = Callable[[], LiveBatch]


class StepHalf(Protocol):
    """The step half: one per engine, told of all that happens there."""

    @property
    def model(self) -> StepModel | None:
        """The step-time model it goes by; None without one, or before it has seen enough."""
        ...

    def limits(self, state: EngineState, live: Live, word: BatchLimits) -> StepLimits:
        """The limits of the next step.

        Args:
            live: gives the requests themselves, at a price; who needs only counts does not call.
            word: what the fleet half said last.
        """
        ...

    def hear(self, word: BatchLimits) -> None:
        """A new word of the fleet half has come."""
        ...

    def observe(self, sample: StepSample) -> None:
        """A step is done."""
        ...

    def finished(self, output_tokens: int) -> None:
        """A request ended by itself after so many tokens."""
        ...

    def left(self, output_tokens: int) -> None:
        """A request was aborted after so many tokens."""
        ...

    def preempted(self) -> None:
        """A request lost its KV blocks."""
        ...

    def resumed(self, gap_s: float) -> None:
        """A preempted request has its next token, so long after the one before."""
        ...


class Follow:
    """The step half of every policy that decides in the slow loop alone: what was pushed holds."""

    def __init__(self, config: BatchingConfig, engine: EngineLimits) -> None:
        self._budget = engine.max_num_batched_tokens
        self.model: StepModel | None = None

    def limits(self, state: EngineState, live: Live, word: BatchLimits) -> StepLimits:
        budget = word.token_budget
        return StepLimits(word.max_running, self._budget if budget is None else budget)

    def hear(self, word: BatchLimits) -> None:
        """Nothing to learn."""

    def observe(self, sample: StepSample) -> None:
        """Nothing to learn."""

    def finished(self, output_tokens: int) -> None:
        """Nothing to learn."""

    def left(self, output_tokens: int) -> None:
        """Nothing to learn."""

    def preempted(self) -> None:
        """Nothing to learn."""

    def resumed(self, gap_s: float) -> None:
        """Nothing to learn."""
