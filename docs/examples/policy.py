"""A policy in one file: additive increase, multiplicative decrease of the cap by the mean ITL.

CONTRIBUTING.md says what else a policy of the project needs. The rule is TCP's congestion control:
a cap of one request more per report while requests wait inside the SLA, a fifth less beyond it.
"""

import math

from controller.policies.base import Decision, Memory, Seen
from controller.records import Reason

DECREASE = 0.8


def decide(memory: Memory, seen: Seen) -> tuple[Decision, Memory]:
    """The cap of one replica, in running requests, at each of its reports.

    Args:
        memory: what the last decision for this replica returned; empty at first.
        seen: ``sla.itl_ms`` is what the cap is moved by; without it the cap only rises.
    """
    config, report = seen.config, seen.report
    lowest = config.max_running.min
    highest = config.upper_bound(report.engine.max_num_seqs)
    cap = memory.get("cap", float(lowest))
    reason: Reason = "load"
    if config.sla.itl_s is not None and report.recent.itl_s > config.sla.itl_s:
        cap, reason = cap * DECREASE, "sla"
    elif report.waiting:  # a cap that no request waits for is not raised
        cap += 1
    cap = min(max(cap, lowest), highest)
    return Decision(math.floor(cap), reason), {"cap": cap}
