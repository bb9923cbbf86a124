"""What we lean on in vLLM's queues and in who holds blocks; the rest is in ``test_contract.py``."""

from dataclasses import fields

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

from tests.vllm.harness import BLOCK, Rig, engine_config


@pytest.fixture
def plain(tiny_llama):
    """vLLM's own scheduler, without a line of ours."""
    return Rig(engine_config(tiny_llama, async_scheduling=True), AsyncScheduler)


def test_the_second_queue_is_there_and_goes_first(plain):
    scheduler = plain.scheduler
    request = plain.add("a", prompt=7, output=3)
    passed_over = plain.add("b", prompt=7, output=3)
    scheduler.waiting.remove_request(passed_over)
    scheduler.skipped_waiting.add_request(passed_over)

    assert scheduler._select_waiting_queue_for_scheduling() is scheduler.skipped_waiting
    assert scheduler.get_request_counts() == (0, 2)
    assert (scheduler.policy.value, scheduler.lora_config) == ("fcfs", None)
    assert (scheduler.finished_recving_kv_req_ids, request.lora_request) == (set(), None)
    assert (request.num_stale_output_tokens, request.drop_stale_output) == (0, False)
    assert [new.req_id for new in plain.step().scheduled_new_reqs] == ["b", "a"]


def test_a_scheduler_says_whether_it_starts_anybody(plain):
    running = plain.add("a", prompt=7, output=3)
    plain.step()
    plain.add("b", prompt=7, output=3)
    assert plain.scheduler.pause_state.name == "UNPAUSED"
    plain.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    assert plain.scheduler.pause_state.name == "PAUSED_NEW"
    plain.step()
    assert plain.scheduler.running == [running]


def test_what_a_request_may_wait_for_has_not_changed():
    waiting = {s.name for s in RequestStatus if not RequestStatus.is_finished(s)} - {"RUNNING"}

    assert waiting - {"WAITING", "PREEMPTED"} == {
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        "WAITING_FOR_REMOTE_KVS",
        "WAITING_FOR_STREAMING_REQ",
    }
    assert "_grammar" in {field.name for field in fields(StructuredOutputRequest)}


def test_each_group_of_layers_knows_the_blocks_of_all_that_hold_some(tiny_llama):
    rig = Rig(engine_config(tiny_llama), AsyncScheduler, window=2 * BLOCK)
    rig.add("a", prompt=2 * BLOCK + 1, output=9)
    rig.step()
    manager = rig.scheduler.kv_cache_manager
    held = [one.req_to_blocks for one in manager.coordinator.single_type_managers]

    assert [{key: len(blocks) for key, blocks in each.items()} for each in held] == 2 * [{"a": 3}]
    assert [block.is_null for block in held[0]["a"]] == [False, False, False]
    rig.abort("a")
    assert [dict(each) for each in held] == [{}, {}]
