"""Requests with remotely computed prompts start before requests that need prefill here.

They need no part of a chunk, and hold KV memory elsewhere until it is read. In vLLM's queue they
would wait behind prompts that take many steps. So they join the skipped requests, which vLLM takes
first under FCFS; by priority, the priority decides.
"""

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.request import Request, RequestStatus

from controller.fail_open import Guard
from replicas.engine.request_facts import remotely_prefilled
from replicas.engine.start_order import passed_over
from replicas.engine.vllm_queues import put_first


class LoadsFirst(AsyncScheduler):
    """Part of the scheduler."""

    guard: Guard

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        self.guard.attempt("a transfer's place in the queue", self._place, request)

    def _place(self, request: Request) -> None:
        # Not ``request in self.waiting``: that deque is empty if late requests are deprioritized.
        # More input of a session is in no queue.
        here = self.requests.get(request.request_id) is request
        waits = here and request.status == RequestStatus.WAITING
        if waits and remotely_prefilled(request) and self.policy.value == "fcfs":
            put_first(self, request, passed_over)
