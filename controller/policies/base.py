"""What a policy is: two pure halves, the fleet half in the controller, the step half in the engine.

A policy decides; the Governor and the scheduler enforce. Bounds, drain and lease are theirs.
"""

from dataclasses import dataclass, field
from typing import Protocol

from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.records import (
    BatchLimits,
    EngineLimits,
    EngineState,
    Reason,
    ReplicaReport,
    StepLimits,
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
    """Both halves of one policy. A fleet half may keep state per replica, rebuilt from reports."""

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        """The limits of one replica, decided at each of its reports."""
        ...

    def step(self, state: EngineState, limits: BatchLimits, engine: EngineLimits) -> StepLimits:
        """The limits of one step, from the live state and the last word of the fleet half."""
        ...

    def forget(self, replica_id: str) -> None:
        """Drop what is kept of a replica that is gone."""
        ...


def follow(limits: BatchLimits, engine: EngineLimits) -> StepLimits:
    """The step half of every policy that decides in the slow loop alone: what was pushed holds."""
    budget = limits.token_budget
    return StepLimits(
        limits.max_running, engine.max_num_batched_tokens if budget is None else budget
    )
