"""The queues of ours behave as vLLM's do, but for the order of late requests."""

import inspect
import re

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.request_queue import (
    RequestQueue,
    SchedulingPolicy,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from replicas.engine.waiting_queues import QUEUES
from tests.vllm.harness import Rig, batching, engine_config
from tests.vllm.replicas.rigs import by_grammar


def test_vllm_knows_these_policies_and_asks_its_queues_for_these_things():
    assert {policy.value for policy in SchedulingPolicy} == set(QUEUES)
    assert RequestQueue.__abstractmethods__ == {
        "add_request",
        "pop_request",
        "peek_request",
        "prepend_request",
        "prepend_requests",
        "remove_request",
        "remove_requests",
        "__bool__",
        "__len__",
        "__iter__",
    }
    asked = set(re.findall(r"self\.waiting\.(\w+)", inspect.getsource(Scheduler)))
    assert asked <= RequestQueue.__abstractmethods__


def request(number: int, priority: int = 0) -> Request:
    params = SamplingParams(max_tokens=5)
    return Request(str(number), [1], params, None, arrival_time=number / 10, priority=priority)


def asides(tiny_llama, **config) -> Rig:
    """One runs at a time; who waits for more than a second is late."""
    block = batching(policy="adaptive", sla={"ttft_ms": 1000}, max_running={"max": 1})
    return Rig(engine_config(tiny_llama, additional_config=block, **config))


def order_of_starts(rig: Rig, steps: int = 100) -> list[str]:
    order = []
    for _ in range(steps):
        order += [new.req_id for new in rig.step().scheduled_new_reqs]
    return order


def test_by_priority_late_requests_step_aside_within_their_own(tiny_llama):
    rig = asides(tiny_llama, scheduling_policy="priority")
    rig.add("late1", prompt=4, output=2, priority=1)
    rig.add("late0", prompt=4, output=2, priority=0)
    rig.now_s += 2.0
    rig.add("new1", prompt=4, output=2, priority=1)
    rig.add("new0", prompt=4, output=2, priority=0)
    assert order_of_starts(rig) == ["new0", "late0", "new1", "late1"]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_an_abort_finds_requests_in_time_and_late_and_one_that_waits_for_its_grammar(
    tiny_llama, policy
):
    rig = asides(tiny_llama, scheduling_policy=policy)
    for index in range(6):
        rig.add(f"late{index}", prompt=4, output=2)
    by_grammar(rig, "grammar")
    rig.now_s += 2.0
    for index in range(6):
        rig.add(f"new{index}", prompt=4, output=2)
    rig.step()
    for request_id in ("late0", "late3", "grammar", "new1", "new5"):
        rig.abort(request_id)
    assert order_of_starts(rig) == ["new2", "new3", "new4", "late1", "late2", "late4", "late5"]
    assert rig.scheduler.get_request_counts() == (0, 0)
