"""Streaming sessions that vLLM has lost count neither as waiting nor against those that wait.

vLLM counts a session twice as one that waits for its client, or counts one that stands in no queue
any more, if it is stopped or preempted with a token under way
(docs/upstream/vllm-session-stopped-twice.md).
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import RequestStatus

from controller.fail_open import Guard
from replicas.engine.start_order import paused
from replicas.engine.vllm_queues import all_waiting, waiting_count


class LostSessions(AsyncScheduler):
    """vLLM's scheduler, which does not take a lost session for one request less to run."""

    guard: Guard

    def get_num_unfinished_requests(self) -> int:
        counted = [super().get_num_unfinished_requests()]
        if self.num_waiting_for_streaming_input:
            self.guard.attempt("requests that are left", self._count, counted)
        return counted[-1]

    def _count(self, counted: list[int]) -> None:
        if not paused(self):
            counted.append(len(self.running) + waiting_requests(self))


def waiting_requests(scheduler: Any) -> int:
    """How many wait for us. A session that waits for its next input waits for its client."""
    waiting = waiting_count(scheduler)
    if not scheduler.num_waiting_for_streaming_input:
        return waiting
    idle = RequestStatus.WAITING_FOR_STREAMING_REQ
    return waiting - sum(r.status == idle for r in all_waiting(scheduler))
