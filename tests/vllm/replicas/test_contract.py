"""Every private thing of vLLM we lean on: an upgrade that changes one fails here, by name."""

import inspect
from dataclasses import fields
from itertools import count

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from replicas.engine.engine_options import cap_name
from replicas.engine.scheduler import RAN_TO_ITS_END
from replicas.engine.vllm_queues import in_order, second_queue
from tests.vllm.harness import Rig, engine_config


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


@pytest.fixture
def plain(tiny_llama):
    """vLLM's own scheduler, without a line of ours."""
    return Rig(engine_config(tiny_llama, async_scheduling=True), AsyncScheduler)


def test_the_running_cap_and_the_token_budget_are_read_at_every_step(plain):
    for index in range(4):
        plain.add(f"r{index}", prompt=100, output=9)
    setattr(plain.scheduler, cap_name(plain.scheduler), 1)
    plain.scheduler.max_num_scheduled_tokens = 30
    first = plain.step()
    setattr(plain.scheduler, cap_name(plain.scheduler), 3)
    plain.scheduler.max_num_scheduled_tokens = 512
    second = plain.step()
    assert first.num_scheduled_tokens == {"r0": 30}
    assert second.num_scheduled_tokens == {"r0": 70, "r1": 100, "r2": 100}


def test_a_cap_below_what_runs_kills_the_engine(plain):
    # Why the cap handed to vLLM is never below the running count.
    for index in range(4):
        plain.add(f"r{index}", prompt=4, output=9)
    plain.step()
    plain.scheduler.max_num_running_reqs = 3
    with pytest.raises(AssertionError):
        plain.step()


def test_a_budget_below_the_running_decodes_starves_the_last_of_them(plain):
    # Why the budget handed to vLLM has a floor.
    for index in range(4):
        plain.add(f"r{index}", prompt=4, output=9)
    plain.step()
    plain.scheduler.max_num_scheduled_tokens = 2
    assert list(plain.step().num_scheduled_tokens) == ["r0", "r1"]


def test_with_async_scheduling_a_request_runs_ahead_of_its_tokens(tiny_llama):
    # Why a synchronous engine gets the plain methods: its pipeline stages could not follow.
    rig = Rig(engine_config(tiny_llama), AsyncScheduler, in_flight=3)
    rig.add("r", prompt=4, output=9)
    assert [list(rig.step().num_scheduled_tokens) for _ in range(2)] == [["r"], ["r"]]


def test_preemption_and_the_end_of_a_request_pass_through_the_hooks(tiny_llama):
    calls = []

    class Watched(AsyncScheduler):
        def _preempt_request(self, request, *args, **kwargs):
            calls.append("preempted")
            return super()._preempt_request(request, *args, **kwargs)

        def _free_request(self, request, *args, **kwargs):
            calls.append(request.status.name)
            return super()._free_request(request, *args, **kwargs)

    rig = Rig(engine_config(tiny_llama, blocks=1 + 4, async_scheduling=True), Watched, in_flight=2)
    rig.add("a", prompt=30, output=20)
    rig.add("b", prompt=30, output=20)
    rig.add("c", prompt=4, output=20)
    rig.abort("c")
    rig.run()
    assert calls.count("preempted") > 0
    assert sorted(set(calls) - {"preempted"}) == ["FINISHED_ABORTED", "FINISHED_LENGTH_CAPPED"]


def test_the_ways_a_request_ends_have_not_changed():
    ends = {status.name for status in RequestStatus if RequestStatus.is_finished(status)}
    assert {status.name for status in RAN_TO_ITS_END} == {
        "FINISHED_STOPPED",
        "FINISHED_LENGTH_CAPPED",
        "FINISHED_REPETITION",
    }
    assert ends - {status.name for status in RAN_TO_ITS_END} == {
        "FINISHED_ABORTED",
        "FINISHED_IGNORED",
        "FINISHED_ERROR",
    }


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_running_request_that_a_step_does_not_see_goes_on_in_the_next(tiny_llama, in_flight):
    config = engine_config(tiny_llama, async_scheduling=in_flight > 1)
    rig = Rig(config, AsyncScheduler if in_flight > 1 else Scheduler, in_flight=in_flight)
    rig.add_all(4, prompt=10, output=30)
    schedule, steps = rig.scheduler.schedule, count()

    def without_some():
        running = rig.scheduler.running
        apart = running[next(steps) % 2 : 3 : 2]
        running[:] = [r for r in running if r not in apart]
        out = schedule()
        assert not out.num_scheduled_tokens.keys() & {r.request_id for r in apart}
        rig.scheduler.running.extend(apart)
        return out

    rig.step()
    rig.scheduler.schedule = without_some
    rig.go_on(40)
    rig.scheduler.schedule = schedule
    rig.run()
    assert rig.all_whole(4, 30)


def test_one_that_a_step_passed_over_is_looked_at_first_in_the_next(plain):
    plain.add("a", prompt=7, output=3)
    blocked = plain.add("b", prompt=7, output=3)
    plain.add("c", prompt=7, output=3)
    setattr(plain.scheduler, cap_name(plain.scheduler), 1)
    plain.step()
    blocked.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    setattr(plain.scheduler, cap_name(plain.scheduler), 2)
    assert [new.req_id for new in plain.step().scheduled_new_reqs] == ["c"]
    assert [r.request_id for r in in_order(plain.scheduler)] == ["b"]
    assert bool(second_queue(plain.scheduler)) is True


def test_what_a_request_may_wait_for_has_not_changed():
    waiting = {s.name for s in RequestStatus if not RequestStatus.is_finished(s)} - {"RUNNING"}
    assert waiting - {"WAITING", "PREEMPTED"} == {
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        "WAITING_FOR_REMOTE_KVS",
        "WAITING_FOR_STREAMING_REQ",
    }
    assert "_grammar" in {field.name for field in fields(StructuredOutputRequest)}
