"""The cap and the token budget move under running requests, on vLLM's own scheduler."""

from dataclasses import replace

import pytest
from vllm.v1.core.sched.output import SchedulerOutput

from controller.errors import ConfigError
from controller.models.step_time import StepModel
from controller.records import Reserve
from replicas.engine.engine_options import cap_name
from replicas.engine.scheduler import DynamicBatchScheduler
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
    assert set(running) >= set(range(64))  # one by one, down to nobody
    assert all(rig.is_whole(f"r{index}", 10 + index) for index in range(64))
    report = rig.exchange()
    assert (report.finished, report.preemptions, report.max_running) == (64, 0, 1)
    assert report.overruled > 0


def test_the_cap_that_is_pushed_binds_under_adaptive(tiny_llama):
    rig = Rig.led(tiny_llama, {"policy": "adaptive", "sla": {"itl_ms": 50}})
    for index in range(30):
        rig.add(f"r{index}", prompt=20, output=20 + index)

    def steps_under(cap: int, steps: int) -> list[int]:
        pushed = limits(
            cap,
            reason="memory",
            target_s=0.05,
            model=StepModel(0.01, 0, 0, 0, 0, 0),
            reserve=Reserve(),
            generation=rig.exchange().generation,
        )
        rig.exchange(pushed)
        running = []
        for _ in range(steps):
            before = len(rig.scheduler.running)
            scheduled = rig.step()
            new = started(scheduled)
            assert not new or before + len(new) <= cap
            running.append(len(scheduled.num_scheduled_tokens))
        report = rig.exchange()
        assert (report.max_running, report.reason) == (cap, "memory")
        return running

    assert set(steps_under(4, 10)) == {4}
    drained = steps_under(2, 12)
    assert drained == sorted(drained, reverse=True)
    assert (drained[0], drained[-1]) == (4, 2)
    assert steps_under(8, 10)[-1] == 8
    rig.run()
    assert all(rig.is_whole(f"r{index}", 20 + index) for index in range(30))
    report = rig.exchange()
    assert report.preemptions == 0
    assert report.bound_steps.memory > 0


def test_limits_of_another_configuration_are_not_applied(tiny_llama):
    rig = Rig.led(tiny_llama)
    before = limits(3)
    rig.scheduler.configure({"policy": "static", "max_running": {"max": 9}})
    assert rig.exchange(before).max_running == 9
    assert rig.exchange(replace(before, generation=1)).max_running == 3


def test_under_a_lowered_cap_no_request_starts_before_there_is_room(rig):
    rig.add_all(100, prompt=20, output=40)
    while len(rig.scheduler.running) < 64:
        rig.step()
    rig.exchange(limits(4))
    while rig.scheduler.has_unfinished_requests():
        before = len(rig.scheduler.running)
        new = started(rig.step())
        assert not new or before + len(new) <= 4
    assert rig.all_whole(100, 40)
    assert rig.exchange().preemptions == 0


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


def test_with_fewer_drafts_by_vllms_table_the_budget_is_for_those(tiny_llama):
    drafts = {**ngram(5), "num_speculative_tokens_per_batch_size": [[1, 8, 5], [9, 64, 1]]}
    rig = Rig.led(tiny_llama, speculative_config=drafts, accepted=1)
    rig.add_all(16, prompt=4, output=31)
    while len(rig.scheduler.running) < 16:
        rig.step()
    rig.exchange(limits(64, token_budget=1))
    rig.step()
    scheduled = rig.step()
    assert scheduled.total_num_scheduled_tokens == 16 * 2
    assert rig.scheduler.max_num_scheduled_tokens == 16 * 2
    assert rig.exchange().decode_tokens == 16 * 2
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


class LaterVllm(DynamicBatchScheduler):
    """As vLLM 0.31 and later: the number that admits is not the runner's size."""

    max_num_active_reqs = 48


def test_where_vllm_admits_by_a_number_of_its_own_that_one_moves(tiny_llama):
    rig = Rig(engine_config(tiny_llama, additional_config=batching()), LaterVllm)
    rig.exchange(limits(5))
    rig.step()
    assert rig.scheduler.max_num_active_reqs == 5
    assert rig.scheduler.max_num_running_reqs == 64


def test_sessions_that_wait_for_their_next_input_do_not_use_up_the_cap(rig):
    rig.exchange(limits(1))
    for index in range(3):
        rig.add(f"session{index}", prompt=4, output=2, resumable=True)
    rig.go_on(8)
    assert rig.scheduler.num_waiting_for_streaming_input == 3
    rig.add("other", prompt=4, output=2)
    rig.go_on(2)
    assert rig.is_whole("other", 2)


def test_with_sessions_that_wait_the_cap_stays_within_the_engines_slots(tiny_llama):
    rig = Rig.led(tiny_llama, max_num_seqs=4)
    for index in range(2):
        rig.add(f"session{index}", prompt=4, output=2, resumable=True)
    rig.go_on(4)
    for cap in (1, 2, 3):
        rig.exchange(limits(cap))
        rig.step()
        assert getattr(rig.scheduler, cap_name(rig.scheduler)) == min(cap + 2, 4)


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


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"batchin": {}},
            "additional_config.brimful: unknown key 'batchin'; did you mean 'batching'?",
        ),
        (
            {"batching": {"sla": {"itl_ms": 0}}},
            "additional_config.brimful.batching.sla.itl_ms: 0 is not allowed: Input should be"
            " greater than 0",
        ),
        (
            {"batching": {"max_running": {"max": 65}}},
            "batching.max_running.max: 65 is above max_num_seqs=64, the size the engine is"
            " started with; lower it or raise max_num_seqs",
        ),
    ],
)
def test_wrong_settings_stop_the_engine_with_one_clear_line(tiny_llama, settings, line):
    config = engine_config(tiny_llama, additional_config={"brimful": settings})
    with pytest.raises(ConfigError) as error:
        Rig(config)
    assert error.value.problems == [line]


def test_without_settings_the_engine_runs_the_default_policy_alone(tiny_llama):
    rig = Rig(engine_config(tiny_llama))
    rig.add("r", prompt=4, output=4)
    rig.run()
    report = rig.exchange()
    assert (report.mode, report.finished) == ("local", 1)
