"""``adaptive`` in vLLM's own scheduler, step by step: who starts, who waits, what is left alone."""

import pytest
from vllm.v1.core.sched.output import SchedulerOutput

from controller.models.step_time import StepModel
from controller.records import Reserve
from tests.vllm.harness import BLOCK, Rig, batching, engine_config, limits

SLA = {"itl_ms": 50, "ttft_ms": 1000}


def adaptive(**block):
    return batching(policy="adaptive", **block)


def started(scheduled: SchedulerOutput) -> list[str]:
    return [new.req_id for new in scheduled.scheduled_new_reqs]


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
