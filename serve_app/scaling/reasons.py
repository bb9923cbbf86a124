"""A number of replicas, and the reason for it."""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["capacity", "queue", "deep_queue", "peak", "idle", "out_of_reach", "unknown"]
"""What set the number: capacity inside the SLA; the queue, if no capacity is known; a queue that
stays deep; the load of the recent past; no request at all; an SLA that no replica keeps; nothing,
as no replica reports enough."""

REASONS: tuple[Reason, ...] = (
    "capacity",
    "queue",
    "deep_queue",
    "peak",
    "idle",
    "out_of_reach",
    "unknown",
)

OUT_OF_REACH = (
    "the SLA is out of reach: one decode alone takes longer, or nearly, and no number of replicas"
    " keeps it; the number stays"
)


@dataclass(frozen=True)
class Decision:
    """How many replicas, and why.

    Args:
        desired: replicas, within the bounds.
        words: the reason, with its numbers, for people.
        capacity_per_s: requests/s of one replica inside the SLA; None if unknown.
        start_s: expected duration of a replica's start.
    """

    desired: int
    reason: Reason
    words: str
    demand_per_s: float
    capacity_per_s: float | None
    capacity_error_frac: float
    start_s: float
