"""vLLM's two queues by either name: who is next, and who is put first."""

from collections.abc import Iterable
from types import SimpleNamespace

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.request_queue import SchedulingPolicy, create_request_queue
from vllm.v1.request import Request, RequestStatus

from replicas.engine.queue_order import Demotions
from replicas.engine.start_order import passed_over
from replicas.engine.vllm_queues import (
    all_waiting,
    in_order,
    put_first,
    second_queue,
    skipped_requests,
    waiting_count,
)
from replicas.engine.waiting_queues import QUEUES, order_waiting, step_aside
from tests.builders import batching

SECOND = pytest.mark.parametrize("second", ["skipped_waiting", "kv_holding_waiting"])
LOAD = {"do_remote_prefill": True}


def request(name: str, priority: int = 0, came_s: float = 0.0) -> Request:
    params = SamplingParams(max_tokens=5)
    return Request(name, [1, 2], params, None, arrival_time=came_s, priority=priority)


def load(name: str) -> Request:
    made = request(name)
    made.kv_transfer_params = LOAD
    return made


def blocked(name: str) -> Request:
    made = request(name)
    made.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    made.structured_output_request = None
    return made


def scheduler_of(
    second: str, waiting: Iterable[Request] = (), first: Iterable[Request] = (), policy="fcfs"
) -> SimpleNamespace:
    kind = SchedulingPolicy(policy)
    made = SimpleNamespace(waiting=create_request_queue(kind), policy=kind, wall_s=lambda: 10.0)
    setattr(made, second, create_request_queue(kind))
    for queue, requests in ((made.waiting, waiting), (getattr(made, second), first)):
        for one in requests:
            queue.add_request(one)
    return made


def names(requests: Iterable[Request]) -> str:
    return "".join(r.request_id for r in requests)


@SECOND
def test_both_queues_are_counted_and_the_second_goes_first(second):
    scheduler = scheduler_of(second, [request("a")], [request("b")])
    assert (waiting_count(scheduler), names(in_order(scheduler))) == (2, "ba")
    assert set(names(all_waiting(scheduler))) == {"a", "b"}
    assert second_queue(scheduler) is getattr(scheduler, second)


@pytest.mark.parametrize(
    ("second", "expected"), [("skipped_waiting", "ab"), ("kv_holding_waiting", "ba")]
)
def test_by_priority_the_lower_head_goes_first_or_whoever_holds_memory(second, expected):
    scheduler = scheduler_of(second, [request("a", 0)], [request("b", 1)], "priority")
    assert names(in_order(scheduler)) == expected


def test_without_a_second_queue_there_is_the_first():
    scheduler = SimpleNamespace(waiting=[1, 2])
    assert (waiting_count(scheduler), list(in_order(scheduler))) == (2, [1, 2])


@SECOND
@pytest.mark.parametrize("lanes", [False, True])
def test_loads_go_first_in_the_order_they_came(second, lanes):
    scheduler = scheduler_of(second, [request("a"), request("b")])
    if lanes:
        queue = QUEUES["fcfs"](Demotions(1e9))
        for one in scheduler.waiting:
            queue.add_request(one)
        scheduler.waiting = queue
    for name in "xyz":
        scheduler.waiting.add_request(one := load(name))
        put_first(scheduler, one, passed_over)
    assert names(in_order(scheduler)) == "xyzab"
    assert names(skipped_requests(scheduler, passed_over)) == "xyz"


def test_what_a_step_passed_over_stays_before_the_loads():
    scheduler = scheduler_of("kv_holding_waiting", [blocked("G"), request("a")])
    scheduler.waiting.add_request(one := load("x"))
    put_first(scheduler, one, passed_over)
    assert names(scheduler.waiting) == "Gxa"


def test_by_priority_nobody_is_put_first_where_there_is_no_queue_for_it():
    scheduler = scheduler_of("kv_holding_waiting", [load("x")], policy="priority")
    assert names(skipped_requests(scheduler, passed_over)) == ""


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_late_ones_behind_one_that_is_passed_over_step_aside_too(policy):
    scheduler = scheduler_of(
        "kv_holding_waiting",
        [blocked("G"), request("a"), request("b", came_s=9.9)],
        policy=policy,
    )
    aside = step_aside(scheduler, None, batching(sla={"ttft_ms": 500}, step_aside=True))
    order_waiting(scheduler, aside, demote=True)
    assert names(scheduler.waiting) == "Gba"
    order_waiting(scheduler, aside, demote=False)
    assert names(scheduler.waiting) == "Gab"


def test_a_load_is_never_late_where_it_stands_among_those_that_wait():
    scheduler = scheduler_of("kv_holding_waiting", [load("x"), request("b", came_s=9.9)])
    aside = step_aside(scheduler, None, batching(sla={"ttft_ms": 500}, step_aside=True))
    order_waiting(scheduler, aside, demote=True)
    assert names(scheduler.waiting) == "xb"
