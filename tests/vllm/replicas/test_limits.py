"""The cap and the token budget move under running requests, on vLLM's own scheduler."""

import pytest
from vllm.v1.core.sched.output import SchedulerOutput

from controller.switch import Switch
from tests.vllm.harness import Rig, batching, engine_config, limits, ngram


@pytest.fixture
def rig(tiny_llama):
    return Rig.led(tiny_llama)


def started(scheduled: SchedulerOutput) -> set[str]:
    return {new.req_id for new in scheduled.scheduled_new_reqs}


def test_a_cap_of_one_under_64_running_drains_and_all_64_are_whole(rig):
    for index in range(64):
        rig.add(f"r{index}", prompt=20, output=10 + index)
    while len(rig.scheduler.running) < 64:
        rig.step()
    rig.exchange(limits(1))
    running = []
    while rig.scheduler.has_unfinished_requests():
        rig.step()
        running.append(len(rig.scheduler.running))
    assert running == sorted(running, reverse=True)
    assert set(running) >= set(range(64))  # one by one, down to none
    assert all(rig.is_whole(f"r{index}", 10 + index) for index in range(64))
    report = rig.exchange()
    assert (report.finished, report.preemptions, report.max_running) == (64, 0, 1)
    assert report.overruled > 0


def test_a_token_budget_bounds_every_step_and_a_raised_one_counts_at_once(rig):
    rig.exchange(limits(64, token_budget=64))
    rig.add_all(8, prompt=300, output=20)
    spent = [rig.step().total_num_scheduled_tokens for _ in range(10)]
    rig.exchange(limits(64, token_budget=512))
    after = rig.step().total_num_scheduled_tokens
    rig.run()
    assert spent == [64] * 10
    assert after == 512
    assert rig.all_whole(8, 20)


def test_a_token_budget_below_the_running_decodes_starves_nobody(rig):
    rig.add_all(64, prompt=4, output=30)
    while len(rig.scheduler.running) < 64:
        rig.step()
    rig.exchange(limits(64, token_budget=1))
    rig.add("late", prompt=40, output=5)
    scheduled = [rig.step() for _ in range(5)]
    assert all(len(step.num_scheduled_tokens) == 64 for step in scheduled)
    rig.run()
    assert rig.is_whole("late", 5)


def test_with_speculative_decoding_the_budget_leaves_room_for_every_draft(tiny_llama):
    rig = Rig.led(tiny_llama, speculative_config=ngram(3), accepted=2)
    rig.add_all(16, prompt=4, output=31)
    while len(rig.scheduler.running) < 16:
        rig.step()
    rig.exchange(limits(64, token_budget=1))
    rig.step()
    decodes = rig.step()
    assert decodes.total_num_scheduled_tokens == 16 * 4
    assert len(decodes.scheduled_spec_decode_tokens) == 16
    rig.run()
    assert rig.all_whole(16, 31)


def test_without_async_scheduling_a_request_in_flight_waits_for_its_token(tiny_llama):
    # Two stages of a pipeline: two steps in flight, each with its own requests.
    rig = Rig(engine_config(tiny_llama, additional_config=batching()), in_flight=2)
    rig.exchange(limits(64, token_budget=60))  # three whole prompts
    rig.add_all(8, prompt=20, output=6)
    before: set[str] = set()
    while rig.scheduler.has_unfinished_requests():
        now = set(rig.step().num_scheduled_tokens)
        assert not now & before
        before = now
    rig.run()
    assert rig.all_whole(8, 6)


def test_sessions_that_wait_for_their_next_input_do_not_use_up_the_cap(rig):
    rig.exchange(limits(1))
    for index in range(3):
        rig.add(f"session{index}", prompt=4, output=2, resumable=True)
    rig.go_on(8)
    assert rig.scheduler.num_waiting_for_streaming_input == 3
    rig.add("other", prompt=4, output=2)
    rig.go_on(2)
    assert rig.is_whole("other", 2)


def test_a_lease_that_ran_out_leaves_the_replica_to_itself_and_it_says_so(rig):
    rig.exchange(limits(3, lease_s=5.0))
    assert rig.exchange().mode == "leased"
    rig.add_all(20, prompt=4, output=10)
    rig.step()
    assert len(rig.scheduler.running) == 3
    rig.now_s += 5.0
    rig.step()
    report = rig.exchange()
    assert (report.mode, report.max_running, report.running) == ("fallback", 64, 20)


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_switched_off_in_the_middle_vllms_own_limits_and_order_hold_until_it_is_on_again(
    tiny_llama, policy
):
    block = {"policy": "static", "sla": {"ttft_ms": 500}, "step_aside": True}
    rig = Rig.led(tiny_llama, block, max_num_seqs=4, scheduling_policy=policy)
    rig.exchange(limits(2, token_budget=64))
    rig.add_all(8, prompt=40, output=20)
    rig.step()
    rig.now_s += 2.0
    rig.add("new", prompt=40, output=20)
    late = [f"r{index}" for index in range(2, 8)]
    told = []
    for epoch_ms, on in ((1, True), (2, False), (3, True)):
        rig.exchange(limits(2, token_budget=64, switches=(Switch(epoch_ms, on),)))
        rig.step()
        running = len(rig.scheduler.running)
        told.append((running, [r.request_id for r in rig.scheduler.waiting]))
    assert told == [(2, ["new", *late]), (4, [*late[2:], "new"]), (4, ["new", *late[2:]])]
    assert rig.scheduler.max_num_scheduled_tokens == 64
    rig.run()
    assert rig.all_whole(8, 20)
