"""``adaptive`` in vLLM's own scheduler, step by step: who starts, who waits, what is left alone."""

import pytest
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from controller.models.step_time import StepModel
from controller.records import Reserve
from replicas.engine.scheduler import DynamicBatchScheduler
from tests.vllm.harness import BLOCK, Rig, batching, engine_config, limits, ngram

SLA = {"itl_ms": 50, "ttft_ms": 1000}


def adaptive(**block):
    return batching(policy="adaptive", **block)


def started(scheduled: SchedulerOutput) -> list[str]:
    return [new.req_id for new in scheduled.scheduled_new_reqs]


def order_of_starts(rig: Rig) -> list[str]:
    order = []
    while rig.scheduler.has_unfinished_requests():
        order += started(rig.step())
    return order


@pytest.mark.parametrize("longer", range(8))  # the forecast is made anew every eight steps
def test_a_preempted_request_that_is_older_than_all_that_run_is_no_trouble(tiny_llama, longer):
    # 320 tokens of KV memory. Answers were short so far: a and b start together, outgrow memory,
    # b waits with what it has generated, and runs again when a has ended and nobody runs.
    rig = Rig(engine_config(tiny_llama, blocks=1 + 20, additional_config=adaptive()))
    for index in range(200):
        rig.add(f"short{index}", prompt=4, output=8)
    rig.run()
    rig.add("a", prompt=150, output=100 + longer)
    rig.add("b", prompt=100, output=100)
    rig.go_on(3)
    rig.add_all(70, prompt=4, output=8)
    rig.run()
    assert rig.exchange().preemptions > 0
    assert rig.is_whole("b", 100)
    assert rig.all_whole(70, 8)


def test_a_late_request_steps_aside_for_one_that_is_not(tiny_llama):
    one = adaptive(sla=SLA, max_running={"max": 1})
    rig = Rig(engine_config(tiny_llama, additional_config=one))
    for index in range(4):
        rig.add(f"late{index}", prompt=4, output=2)
    rig.now_s += 2.0
    for index in range(4):
        rig.add(f"new{index}", prompt=4, output=2)
    assert order_of_starts(rig) == [f"new{i}" for i in range(4)] + [f"late{i}" for i in range(4)]


@pytest.mark.parametrize("block", [{"sla": {"itl_ms": 50}}, {"sla": SLA, "step_aside": False}])
def test_without_a_ttft_or_told_not_to_no_request_steps_aside(tiny_llama, block):
    one = adaptive(max_running={"max": 1}, **block)
    rig = Rig(engine_config(tiny_llama, additional_config=one))
    rig.add("late", prompt=4, output=2)
    rig.now_s += 2.0
    rig.add("new", prompt=4, output=2)
    assert order_of_starts(rig) == ["late", "new"]


def test_a_late_request_is_served_while_others_keep_coming(tiny_llama):
    # One runs at a time, for five steps, and another comes whenever one has ended: the queue never
    # empties, and the step in which the late one's turn comes has no room for it.
    one = adaptive(sla=SLA, max_running={"max": 1})
    rig = Rig(engine_config(tiny_llama, additional_config=one))
    rig.add("late", prompt=4, output=5)
    rig.now_s += 2.0
    rig.add("new0", prompt=4, output=5)
    rig.add("new1", prompt=4, output=5)
    order, came = [], 2
    while "late" not in order and came < 100:
        new = started(rig.step())
        order += new
        for _ in new:
            rig.add(f"new{came}", prompt=4, output=5)
            came += 1
    assert order[0] == "new0"
    assert len(order) in range(20, 24)  # one start in twenty
    rig.run()
    assert rig.is_whole("late", 5)


LATE = limits(  # decodes alone are late: no step has room for prompts
    64, reason="sla", target_s=0.05, model=StepModel(0.06, 0, 0, 1e-4, 0, 0), reserve=Reserve()
)


def test_a_prompt_waits_for_the_room_that_the_decodes_leave(tiny_llama):
    rig = Rig(engine_config(tiny_llama, additional_config=adaptive(sla={"itl_ms": 50})))
    rig.step_s = 0.06
    rig.add_all(8, prompt=20, output=200)
    rig.go_on(40)
    rig.exchange(LATE)
    running = [r.request_id for r in rig.scheduler.running]
    for index in range(8):
        rig.add(f"more{index}", prompt=300, output=5)
    steps = [rig.step() for _ in range(40)]
    for scheduled in steps:
        assert all(scheduled.num_scheduled_tokens[r] == 1 for r in running)
        assert scheduled.total_num_scheduled_tokens <= len(running) + BLOCK
    rig.run()
    assert all(rig.is_whole(f"more{index}", 5) for index in range(8))
    assert rig.exchange().bound_steps.sla > 0


def test_with_drafts_no_decode_is_kept_from_its_own(tiny_llama):
    config = engine_config(
        tiny_llama, additional_config=adaptive(sla=SLA), speculative_config=ngram(3)
    )
    rig = Rig(config, accepted=2)
    rig.add_all(40, prompt=30, output=60)
    while rig.scheduler.has_unfinished_requests():
        decoding = [r.request_id for r in rig.scheduler.running if r.spec_token_ids]
        drafted = {r: len(rig.scheduler.requests[r].spec_token_ids) for r in decoding}
        given = rig.step().num_scheduled_tokens
        assert {r: given.get(r) for r in decoding} == {r: 1 + n for r, n in drafted.items()}
    assert rig.all_whole(40, 60)


def test_drafts_that_vllms_table_does_not_make_are_no_room_for_prompts(tiny_llama):
    drafts = {**ngram(5), "num_speculative_tokens_per_batch_size": [[1, 3, 5], [4, 64, 1]]}
    config = engine_config(
        tiny_llama, additional_config=adaptive(sla=SLA), speculative_config=drafts
    )
    rig = Rig(config, accepted=1)
    rig.step_s = 0.06
    rig.add_all(20, prompt=30, output=200)
    while len(rig.scheduler.running) < 20:
        rig.step()
    rig.go_on(20)
    rig.exchange(LATE)
    decoding = {r.request_id for r in rig.scheduler.running}
    for index in range(4):
        rig.add(f"more{index}", prompt=300, output=5)
    for _ in range(18):  # in which one prompt gets on
        given = rig.step().num_scheduled_tokens
        assert {given[r] for r in decoding} == {2}
        assert sum(given.values()) <= rig.scheduler.max_num_scheduled_tokens
        assert rig.scheduler.max_num_scheduled_tokens <= 2 * len(decoding) + BLOCK


def test_prompts_that_share_their_beginning_share_its_memory(tiny_llama):
    # 30 prompts of 161 tokens, ten blocks of them alike: 4,830 tokens in a memory of 800.
    config = engine_config(
        tiny_llama, blocks=1 + 50, additional_config=adaptive(), enable_prefix_caching=True
    )
    rig = Rig(config)
    rig.exchange(limits(64, reserve=Reserve(0, BLOCK)))
    rig.add("first", prompt=10 * BLOCK + 1, output=4)
    rig.go_on(3)
    rig.add_all(30, prompt=10 * BLOCK + 1, output=4)
    computed, together = {}, 0
    while rig.scheduler.has_unfinished_requests():
        scheduled = rig.step()
        computed |= {n.req_id: n.num_computed_tokens for n in scheduled.scheduled_new_reqs}
        together = max(together, len(rig.scheduler.running))
    assert set(computed.values()) == {10 * BLOCK}
    assert together > 4  # as many as would fit if they shared nothing
    assert rig.exchange().preemptions == 0


@pytest.mark.parametrize("sla", [{}, {"ttft_ms": 60_000}, {"itl_ms": 5000}], ids=str)
@pytest.mark.parametrize("blocks", [1200, 20_000], ids=["memory looked ahead", "memory for all"])
def test_as_many_short_prompts_start_in_a_step_as_under_vllm(tiny_llama, sla, blocks):
    sizes = {"blocks": blocks, "max_num_seqs": 256, "max_num_batched_tokens": 2048}
    steps = {}
    alone = {"brimful": {"batching": {"policy": "adaptive", "sla": sla}}}
    for scheduler, block in ((DynamicBatchScheduler, alone), (Scheduler, {})):
        rig = Rig(engine_config(tiny_llama, additional_config=block, **sizes), scheduler)
        rig.add_all(600, prompt=20, output=1)
        steps[scheduler] = [rig.step().total_num_scheduled_tokens for _ in range(6)]
        assert not rig.scheduler.has_unfinished_requests()
    assert steps[DynamicBatchScheduler] == steps[Scheduler]


@pytest.mark.parametrize(("cap", "reason"), [(64, "load"), (4, "memory"), (4, "sla")])
@pytest.mark.parametrize("rank", [0, 1])
def test_who_outranks_a_running_request_starts_over_the_cap_and_in_the_memory_kept_for_it(
    tiny_llama, rank, cap, reason
):
    config = engine_config(
        tiny_llama, blocks=1 + 50, scheduling_policy="priority", additional_config=adaptive()
    )
    rig = Rig(config)
    for index in range(4):
        rig.add(f"batch{index}", prompt=50, output=100, priority=1)
    rig.exchange(limits(64, reserve=Reserve()))
    rig.step()
    assert len(rig.scheduler.running) == 4
    rig.exchange(limits(cap, reason=reason, reserve=Reserve(0, 200)))
    rig.add("first", prompt=50, output=100, priority=rank)
    rig.add("second", prompt=50, output=100, priority=rank)
    outranks = rank == 0
    assert [started(rig.step()) for _ in range(2)] == (
        [["first"], ["second"]] if outranks else [[], []]
    )
    rig.run()
    assert rig.is_whole("first", 100) and rig.is_whole("batch0", 100)
