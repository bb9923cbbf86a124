"""Access to vLLM's two waiting queues, in all supported versions.

Up to 0.32 ``skipped_waiting`` holds requests that vLLM passed over because something was missing (a
grammar, KV from elsewhere, the next input of a session). From 0.33 on such a request stays at the
front of ``waiting``, and ``kv_holding_waiting`` holds those with KV blocks. The second queue is
served before ``waiting``; by priority, up to 0.32 the lower head is.
"""

import heapq
from collections.abc import Callable, Iterable
from itertools import chain, takewhile
from typing import Any

SKIPPED, HOLDING = "skipped_waiting", "kv_holding_waiting"


def skipped_queue(scheduler: Any) -> Any:
    """The queue of requests that were passed over; None: they stay in ``waiting`` (0.33)."""
    return getattr(scheduler, SKIPPED, None)


def second_queue(scheduler: Any) -> Any:
    """The queue other than ``waiting``; () if a version has neither."""
    skipped = skipped_queue(scheduler)
    return getattr(scheduler, HOLDING, ()) if skipped is None else skipped


def waiting_count(scheduler: Any) -> int:
    """How many requests stand in both queues."""
    return len(scheduler.waiting) + len(second_queue(scheduler))


def all_waiting(scheduler: Any) -> Iterable[Any]:
    """The requests of both queues, in arbitrary order."""
    return chain(*map(_members, (scheduler.waiting, second_queue(scheduler))))


def in_order(scheduler: Any) -> Iterable[Any]:
    """The requests of both queues in vLLM's order."""
    waiting, second = scheduler.waiting, second_queue(scheduler)
    if not second:
        return waiting
    if scheduler.policy.value == "priority" and skipped_queue(scheduler) is not None:
        return heapq.merge(second, waiting)  # among equals vLLM takes the skipped one
    return chain(second, waiting)


def put_first(scheduler: Any, request: Any, passes: Callable[[Any], bool]) -> None:
    """Put a waiting request before all others (FCFS only).

    Args:
        passes: whether a request at the front of ``waiting`` stays before it (0.33).
    """
    waiting, skipped = scheduler.waiting, skipped_queue(scheduler)
    waiting.remove_request(request)
    if skipped is not None:
        skipped.add_request(request)
        return
    before = list(takewhile(passes, waiting))
    waiting.remove_requests(before)
    for one in (request, *reversed(before)):
        waiting.prepend_request(one)


def skipped_requests(scheduler: Any, passes: Callable[[Any], bool]) -> Iterable[Any]:
    """The requests that ``put_first`` put first, and others that were passed over."""
    skipped = skipped_queue(scheduler)
    if skipped is not None:
        return skipped
    if scheduler.policy.value == "priority":
        return ()
    return takewhile(passes, scheduler.waiting)


def _members(queue: Any) -> Iterable[Any]:
    # Iterating a priority queue would copy and sort it.
    return getattr(queue, "_heap", None) or queue
