"""Corrects vLLM's count of unfinished requests for streaming sessions that it lost.

If a session is stopped or preempted with a token in flight, vLLM counts it twice as waiting for its
client, or counts one that is in no queue any more (docs/upstream/vllm-session-stopped-twice.md).
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import RequestStatus

from controller.fail_open import Guard
from replicas.engine.start_order import paused
from replicas.engine.vllm_queues import all_waiting, waiting_count


class LostSessions(AsyncScheduler):
    """vLLM's scheduler with a correct count of unfinished requests."""

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
    """Waiting requests; a session that waits for its client's next input does not count."""
    waiting = waiting_count(scheduler)
    if not scheduler.num_waiting_for_streaming_input:
        return waiting
    idle = RequestStatus.WAITING_FOR_STREAMING_REQ
    return waiting - sum(r.status == idle for r in all_waiting(scheduler))
