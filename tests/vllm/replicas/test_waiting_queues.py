"""The queues of ours behave as vLLM's do, but for the order of late requests."""

import inspect
import random
import re

import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.request_queue import (
    FCFSRequestQueue,
    PriorityRequestQueue,
    RequestQueue,
    SchedulingPolicy,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from replicas.engine.queue_order import Demotions
from replicas.engine.vllm_queues import all_waiting
from replicas.engine.waiting_queues import QUEUES
from tests.vllm.harness import SKIPS_APART, Rig, batching, engine_config
from tests.vllm.replicas.rigs import by_grammar

VLLMS = {"fcfs": FCFSRequestQueue, "priority": PriorityRequestQueue}
POLICIES = pytest.mark.parametrize("policy", list(VLLMS))


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


@POLICIES
@pytest.mark.parametrize("seed", range(5))
def test_while_all_are_in_time_they_are_vllms_own(policy, seed):
    rng = random.Random(seed)
    ours, theirs = QUEUES[policy](Demotions(1e9)), VLLMS[policy]()
    assert isinstance(ours, VLLMS[policy])
    here: list[Request] = []
    for number in range(300):
        what = rng.choice(["add", "add", "add", "pop", "prepend", "back", "remove", "some"])
        for queue in (ours, theirs):
            if what == "add":
                queue.add_request(request_of(number, rng, here, queue is ours))
        if what == "pop" and theirs:
            assert ours.peek_request() is theirs.peek_request()
            popped = theirs.pop_request()
            assert ours.pop_request() is popped
            here.remove(popped)
        if what == "prepend":
            one = request(number, number % 3)
            here.append(one)
            ours.prepend_request(one)
            theirs.prepend_request(one)
        if what == "back":
            some = VLLMS[policy]()
            for offset in range(2):
                one = request(1000 + 2 * number + offset, number % 3)
                here.append(one)
                some.add_request(one)
            ours.prepend_requests(some)
            theirs.prepend_requests(some)
        if what in ("remove", "some") and here:
            gone = rng.sample(here, 1 if what == "remove" else min(3, len(here)))
            for queue in (ours, theirs):
                if what == "remove":
                    queue.remove_request(gone[0])
                else:
                    queue.remove_requests(gone)
            here = [r for r in here if r not in gone]
        ours.reorder()
        assert list(ours) == list(theirs)
        assert (len(ours), bool(ours)) == (len(theirs), bool(theirs))


def request_of(number: int, rng: random.Random, here: list[Request], new: bool) -> Request:
    """One request for both queues."""
    if new:
        here.append(request(number, rng.randint(0, 2)))
    return here[-1]


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


def test_late_requests_that_waited_for_their_grammar_step_aside_too(tiny_llama):
    rig = asides(tiny_llama)
    by_grammar(rig, "grammar").set_result(object())
    by_grammar(rig, "never")
    rig.now_s += 2.0
    rig.add("new", prompt=4, output=2)
    assert [new.req_id for new in rig.scheduler.schedule().scheduled_new_reqs] == ["new"]
    late = [r.request_id for r in rig.scheduler.waiting]
    assert late == (["grammar"] if SKIPS_APART else ["never", "grammar"])
    assert {r.request_id for r in all_waiting(rig.scheduler)} == {"grammar", "never"}


@POLICIES
def test_an_abort_finds_requests_in_time_and_late(tiny_llama, policy):
    rig = asides(tiny_llama, scheduling_policy=policy)
    for index in range(6):
        rig.add(f"late{index}", prompt=4, output=2)
    rig.now_s += 2.0
    for index in range(6):
        rig.add(f"new{index}", prompt=4, output=2)
    rig.step()
    for request_id in ("late0", "late3", "new1", "new5"):
        rig.abort(request_id)
    assert order_of_starts(rig) == ["new2", "new3", "new4", "late1", "late2", "late4", "late5"]
    assert rig.scheduler.get_request_counts() == (0, 0)


@POLICIES
def test_a_session_that_holds_its_memory_does_not_step_aside_with_it(tiny_llama, policy):
    rig = Rig.led(
        tiny_llama,
        {"sla": {"ttft_ms": 300}, "step_aside": True},
        scheduling_policy=policy,
        max_num_seqs=2,
    )
    rig.add("s", prompt=200, output=60, resumable=True)
    rig.add("a", prompt=20, output=200)
    rig.step()
    # The next input, which waits for the first answer: 0.6 s, twice the time to first token.
    rig.add("s", prompt=200, output=60, resumable=True)
    session = rig.scheduler.requests["s"]
    while session in rig.scheduler.running:
        rig.step()
    assert session.num_computed_tokens
    rig.add("b", prompt=20, output=30)
    rig.step()
    assert session in rig.scheduler.running


def test_a_long_prompt_that_is_cached_is_not_late(tiny_llama):
    block = {"policy": "adaptive", "sla": {"ttft_ms": 1000}}
    rig = Rig.led(tiny_llama, block, enable_prefix_caching=True)
    rig.add("first", prompt=400, output=2)
    rig.run()
    aside = rig.scheduler._aside
    aside._tokens_per_s = 100.0
    cold = rig.add("cold", prompt=[2] * 400, output=2)
    warm = rig.add("warm", prompt=400, output=2)
    aside.now_s = rig.now_s
    assert aside.late(cold) and not aside.late(warm)
