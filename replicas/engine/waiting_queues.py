"""vLLM's two kinds of queue, with late requests demoted (``replicas.engine.queue_order``)."""

import heapq
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from vllm.v1.core.sched.request_queue import (
    FCFSRequestQueue,
    PriorityRequestQueue,
    RequestQueue,
)
from vllm.v1.request import Request

from controller.config import BatchingConfig
from replicas.engine.queue_order import Demotions, Lane, SortedLane
from replicas.engine.start_order import passed_over
from replicas.engine.vllm_queues import skipped_queue


class _Lanes(RequestQueue):
    """The part common to both: the next request is that of the first lane that has one."""

    @abstractmethod
    def _lane(self, request: Request) -> Lane:
        """The lane of a request that is here or is to be added."""

    @abstractmethod
    def _first(self) -> Lane:
        """The lane that is served now.

        Raises:
            IndexError: no request waits.
        """

    def reorder(self) -> None:
        """Before a step: deprioritize late requests at the front."""
        if len(self):
            self._first().reorder()

    @abstractmethod
    def restore(self) -> None:
        """Restore vLLM's order for all requests."""

    def add_late(self, request: Request) -> None:
        """Add a request found late elsewhere."""
        self._lane(request).add_late([request])

    def add_request(self, request: Request) -> None:
        self._lane(request).add(request)

    def prepend_request(self, request: Request) -> None:
        self._lane(request).prepend(request)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in requests:  # this reverses their order, as in vLLM
            self.prepend_request(request)

    def peek_request(self) -> Request:
        request: Request = self._first().peek()
        return request

    def pop_request(self) -> Request:
        request: Request = self._first().pop()
        return request

    def remove_request(self, request: Request) -> None:
        self._lane(request).discard([request])

    def __bool__(self) -> bool:
        return len(self) > 0


class AsideFcfs(_Lanes, FCFSRequestQueue):
    """First come, first served, with late requests last."""

    def __init__(self, aside: Demotions) -> None:
        super().__init__()  # vLLM's own deque stays empty
        self._only = Lane(aside)

    def _lane(self, request: Request) -> Lane:
        return self._only

    def _first(self) -> Lane:
        return self._only

    def restore(self) -> None:
        self._only.restore()

    def remove_requests(self, requests: Iterable[Request]) -> None:
        self._only.discard(list(requests))

    def __len__(self) -> int:
        return len(self._only)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._only)


class AsidePriority(_Lanes, PriorityRequestQueue):
    """By priority; late requests last within a priority."""

    def __init__(self, aside: Demotions) -> None:
        super().__init__()
        self._aside = aside
        self._lanes: dict[int, SortedLane] = {}
        self._ranks: list[int] = []  # a heap of priorities

    def _lane(self, request: Request) -> Lane:
        lane = self._lanes.get(request.priority)
        if lane is None:
            lane = self._lanes[request.priority] = SortedLane(self._aside)
            heapq.heappush(self._ranks, request.priority)
        return lane

    def _first(self) -> Lane:
        while not self._lanes[self._ranks[0]]:
            del self._lanes[heapq.heappop(self._ranks)]
        return self._lanes[self._ranks[0]]

    def restore(self) -> None:
        for lane in self._lanes.values():
            lane.restore()

    def remove_requests(self, requests: Iterable[Request]) -> None:
        by_rank: dict[int, list[Request]] = {}
        for request in requests:
            by_rank.setdefault(request.priority, []).append(request)
        for rank, some in by_rank.items():
            if rank in self._lanes:
                self._lanes[rank].discard(some)

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __bool__(self) -> bool:
        return any(map(len, self._lanes.values()))

    def __iter__(self) -> Iterator[Request]:
        for rank in sorted(self._lanes):
            yield from self._lanes[rank]


QUEUES: dict[str, Any] = {"fcfs": AsideFcfs, "priority": AsidePriority}


def step_aside(
    scheduler: Any,
    aside: Demotions | None,
    batching: BatchingConfig,
    ttft_of: Callable[[str], float] | None = None,
    cached: Callable[[Any], int] | None = None,
) -> Demotions | None:
    """Deprioritize late requests if ``batching`` says so; waiting ones keep their place.

    Args:
        aside: what judges them so far; None: no judge yet.
        ttft_of: gives the TTFT of a request, by its id.
        cached: as in ``Demotions``.
    """
    ttft_ms = batching.sla.ttft_ms
    wanted = batching.steps_aside and batching.enforce and (ttft_ms or ttft_of)
    ttft_s = ttft_ms / 1000 if wanted and ttft_ms else math.inf
    if aside is not None:
        scheduler.waiting.restore()
        aside.ttft_s, aside.ttft_of = ttft_s, ttft_of if wanted else None
    elif wanted:
        stay = passed_over if skipped_queue(scheduler) is None else None
        aside = Demotions(ttft_s, ttft_of, stay, cached)
        queue = QUEUES[scheduler.policy.value](aside)
        for request in scheduler.waiting:
            queue.add_request(request)
        scheduler.waiting = queue
    return aside


def order_waiting(scheduler: Any, aside: Demotions, *, demote: bool) -> None:
    """Before a step: deprioritize late requests, or, not ``demote``, restore vLLM's order."""
    if not demote:
        scheduler.waiting.restore()
        return
    aside.now_s = scheduler.wall_s()
    if skipped := skipped_queue(scheduler):
        pass_over_late(scheduler, skipped, aside)
    scheduler.waiting.reorder()


def pass_over_late(scheduler: Any, skipped: Any, aside: Demotions) -> None:
    """Deprioritize late requests among those that vLLM would take first.

    They waited for something of their own, such as a grammar, and have it now. A request whose
    prompt another engine computed is left: it holds memory there.
    """
    late = [r for r in skipped if not passed_over(r) and aside.late(r)]
    if late:
        skipped.remove_requests(late)
        for request in late:
            scheduler.waiting.add_late(request)
