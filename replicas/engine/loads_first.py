"""Requests whose prompts another engine has computed come before those that compute theirs here.

They need no chunk of a step, and their KV is held elsewhere until it is read. In vLLM's queue they
would stand behind prompts that take many steps. So they join the skipped requests, which vLLM
takes first (first come, first served; by priority, that decides).
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
        # Not ``request in self.waiting``: a queue in which late ones step aside is an empty deque.
        # More input of a session stands in no queue.
        here = self.requests.get(request.request_id) is request
        waits = here and request.status == RequestStatus.WAITING
        if waits and remotely_prefilled(request) and self.policy.value == "fcfs":
            put_first(self, request, passed_over)
