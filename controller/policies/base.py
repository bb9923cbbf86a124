"""A policy: one pure function of what an engine and its group have shown.

A policy decides; the engine's limiter applies. Bounds, drain and lease are handled elsewhere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.config import BatchingConfig
from controller.law.rows import StepRows
from controller.law.step_model import Fit
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.models.survival import Exposure
from controller.records import Decision, ReplicaReport

__all__ = ["Decide", "Decision", "Memory", "Pool", "Seen"]

Memory = Mapping[str, Any]
"""A policy's state for one replica, plain data below 2 kB. It travels with the limits, and comes
back with the next report, so a new controller goes on where the last one was.
"""


@dataclass(frozen=True, slots=True)
class Pool:
    """The pooled knowledge of all replicas of a group.

    Args:
        replicas: number that reported within the last leases.
        lengths: moments of the lengths of finished requests.
        model: step-time model of all steps; None if it is not identified yet.
        outputs: output lengths, by ``survival.EDGES``.
    """

    replicas: int = 0
    lengths: LengthMoments = field(default_factory=LengthMoments)
    model: StepModel | None = None
    outputs: Exposure = field(default_factory=Exposure.nothing)


@dataclass(frozen=True, slots=True)
class Seen:
    """The input of a policy.

    Args:
        report: the replica's.
        rows, fit: its last steps, and their step-time model.
        pool: its group's.
        now_s: the clock of the deciding process.
    """

    config: BatchingConfig
    report: ReplicaReport
    rows: StepRows
    fit: Fit
    pool: Pool
    now_s: float


Decide = Callable[[Memory, Seen], tuple[Decision, Memory]]
