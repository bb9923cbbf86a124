"""A policy in one file: additive increase, multiplicative decrease of the cap by the mean ITL.

CONTRIBUTING.md says what else a policy of the project needs. The rule is TCP's congestion control:
a cap of one request more per report while requests wait inside the SLA, a fifth less beyond it.
"""

import math

from controller.config import BatchingConfig
from controller.policies.base import Decision, Policy, Pool
from controller.records import Reason, ReplicaReport

DECREASE = 0.8


class AimdPolicy(Policy):
    """The part in the controller; ``ApplyPushed`` is the part in the engine.

    Args:
        config: ``sla.itl_ms`` is what the cap is moved by; without it the cap only rises.
    """

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config
        self._caps: dict[str, float] = {}  # by replica, requests

    def fleet(self, report: ReplicaReport, pool: Pool, now_s: float) -> Decision:
        """The cap of one replica, in running requests, at each of its reports."""
        lowest = self._config.max_running.min
        highest = self._config.upper_bound(report.engine.max_num_seqs)
        cap = self._caps.get(report.replica_id, float(lowest))
        reason: Reason = "load"
        if self._config.sla.itl_s is not None and report.recent.itl_s > self._config.sla.itl_s:
            cap, reason = cap * DECREASE, "sla"
        elif report.waiting:  # a cap that nobody needs is not raised
            cap += 1
        cap = min(max(cap, lowest), highest)
        self._caps[report.replica_id] = cap
        return Decision(math.floor(cap), reason)

    def forget(self, replica_id: str) -> None:
        """A replica is gone; one that comes back starts anew."""
        self._caps.pop(replica_id, None)
