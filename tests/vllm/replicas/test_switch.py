"""Control switched off in the middle of a run leaves vLLM's own scheduler, step for step."""

import random
from dataclasses import replace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import FCFSRequestQueue, PriorityRequestQueue
from vllm.v1.core.sched.scheduler import Scheduler

from controller.records import Advised, BatchLimits
from controller.switch import Switch
from replicas.engine.engine_options import cap_name
from tests.vllm.harness import Rig, batching, engine_config, limits

SLA = {"itl_ms": 50, "ttft_ms": 500}
SIZES = {"max_num_seqs": 24, "max_num_batched_tokens": 256}
PLAIN = {"fcfs": FCFSRequestQueue, "priority": PriorityRequestQueue}
BLOCKS = {
    "adaptive": {"policy": "adaptive", "sla": SLA},
    "paper": {"policy": "paper", "sla": SLA, "step_aside": True},
    "static": {"policy": "static", "max_running": {"max": 3}, "sla": SLA, "step_aside": True},
}


def switched(epoch_ms: int, *, on: bool, group: str | None = None) -> BatchLimits:
    """The controller's limits with control switched."""
    return limits(6, 64, switches=(Switch(epoch_ms, on, group),))


def rig_of(tiny_llama, block: dict[str, Any], in_flight: int = 1, policy: str = "fcfs") -> Rig:
    """Little memory; steps of 60 ms that break the SLA of 50."""
    config = engine_config(
        tiny_llama,
        blocks=1 + 60,
        async_scheduling=in_flight > 1,
        additional_config=block,
        scheduling_policy=policy,
        **SIZES,
    )
    return Rig(config, step_s=0.06, in_flight=in_flight)


class Crowd:
    """The same requests for every rig: they come while others run."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._count = 0

    def steps(self, rig: Rig, count: int) -> list[SchedulerOutput]:
        steps = []
        for _ in range(count):
            for _ in range(self._rng.choice((0, 0, 1, 2))):
                prompt, output = self._rng.randint(1, 200), self._rng.randint(1, 80)
                priority = self._rng.randint(0, 2)
                rig.add(f"r{self._count}", prompt=prompt, output=output, priority=priority)
                self._count += 1
            steps.append(rig.step())
        return steps


def watched(rig: Rig) -> list[str]:
    """The requests that are preempted from now on, in that order."""
    lost: list[str] = []
    scheduler = rig.scheduler
    before = scheduler._preempt_request

    def preempt(request: Any, *args: Any, **kwargs: Any) -> Any:
        lost.append(request.request_id)
        return before(request, *args, **kwargs)

    scheduler._preempt_request = preempt
    return lost


def made_plain(rig: Rig, lost: list[str], policy: str) -> None:
    """The same engine in the hands of vLLM's own scheduler, as if it had never had another.

    Those that wait stand in the order that vLLM gives them: whoever was preempted last goes first,
    the others as they came. What limits there are, are those of the start.
    """
    scheduler = rig.scheduler
    came = {f"r{index}": index for index in range(10_000)}
    waiting = list(scheduler.waiting)
    again = [r for r in waiting if r.num_preemptions]
    again.sort(key=lambda r: len(lost) - lost[::-1].index(r.request_id), reverse=True)
    first_time = sorted(
        (r for r in waiting if not r.num_preemptions), key=lambda r: came[r.request_id]
    )
    queue = PLAIN[policy]()
    for request in again + first_time:
        queue.add_request(request)
    del scheduler._preempt_request
    overlaps = scheduler.scheduler_config.async_scheduling
    if not overlaps:  # what ours bound to itself
        del scheduler._update_after_schedule, scheduler._update_request_with_output
    scheduler.__class__ = AsyncScheduler if overlaps else Scheduler
    scheduler.waiting = queue
    setattr(scheduler, cap_name(scheduler), SIZES["max_num_seqs"])
    scheduler.max_num_scheduled_tokens = SIZES["max_num_batched_tokens"]


def seen(rig: Rig, step: SchedulerOutput) -> tuple[Any, ...]:
    """All that a step decided and left behind."""
    return (
        step.num_scheduled_tokens,
        [new.req_id for new in step.scheduled_new_reqs],
        sorted(step.preempted_req_ids or ()),
        [r.request_id for r in rig.scheduler.running],
        [r.request_id for r in rig.scheduler.waiting],
    )


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("policy", list(PLAIN))
@pytest.mark.parametrize("name", list(BLOCKS))
def test_switched_off_in_the_middle_it_is_vllms_own(tiny_llama, name, policy, in_flight):
    block = batching(**BLOCKS[name])
    ours, theirs = (rig_of(tiny_llama, block, in_flight, policy) for _ in range(2))
    crowds = Crowd(seed=in_flight), Crowd(seed=in_flight)
    lost = watched(theirs)
    for rig, crowd in zip((ours, theirs), crowds, strict=True):
        rig.exchange(limits(6, 64))
        crowd.steps(rig, 80)
    assert len(ours.scheduler.waiting) > 5  # it was held back, and some are late
    report = ours.exchange(switched(1, on=False))
    made_plain(theirs, lost, policy)
    assert (report.enforced, report.switches) == (False, (Switch(1, False),))
    for _ in range(150):
        (decided,), (wanted,) = (
            crowd.steps(rig, 1) for rig, crowd in zip((ours, theirs), crowds, strict=True)
        )
        assert seen(ours, decided) == seen(theirs, wanted)
    report = ours.exchange()
    assert report.preemptions > 0  # memory was tight
    assert report.running + report.waiting > 0


def test_switched_on_again_the_cap_and_the_chunk_hold_again(tiny_llama):
    rig = rig_of(tiny_llama, batching(policy="static"))
    for index in range(60):
        rig.add(f"r{index}", prompt=20, output=20 + index)
    rig.exchange(switched(1, on=False))
    rig.step()
    assert len(rig.scheduler.running) > 6
    report = rig.exchange(switched(2, on=True))
    assert report.enforced
    new = []
    while len(rig.scheduler.running) > 6 and not new:
        new = rig.step().scheduled_new_reqs
    assert len(rig.scheduler.running) == 6
    assert not new
    for _ in range(10):
        assert rig.step().total_num_scheduled_tokens <= 64
        assert len(rig.scheduler.running) <= 6


def test_who_stepped_aside_stands_where_it_came_and_steps_aside_when_it_is_on_again(tiny_llama):
    rig = rig_of(tiny_llama, batching(**BLOCKS["static"]))
    rig.exchange(limits(1))
    rig.add("runs", prompt=4, output=200)
    for index in range(3):
        rig.add(f"late{index}", prompt=4, output=2)
    rig.step()
    rig.now_s += 2.0
    rig.add("new", prompt=4, output=2)
    orders = []
    for epoch_ms, on in ((1, True), (2, False), (3, True)):
        # The cap of one holds off and on: it is what the engine has, for the length of this test.
        rig.scheduler.governor.engine = replace(rig.scheduler.governor.engine, max_num_seqs=1)
        rig.exchange(limits(1, switches=(Switch(epoch_ms, on),)))
        rig.step()
        orders.append([r.request_id for r in rig.scheduler.waiting])
    late = ["late0", "late1", "late2"]
    assert orders == [["new", *late], [*late, "new"], ["new", *late]]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_what_advice_would_have_moved_is_of_the_step_it_was_computed_for(tiny_llama, in_flight):
    block = batching(policy="static", enforce=False, max_running={"max": 5})
    config = engine_config(
        tiny_llama, async_scheduling=in_flight == 2, additional_config=block, max_num_seqs=8
    )
    rig = Rig(config, in_flight=in_flight)
    for name in "abcde":
        rig.add(name, prompt=20, output=5)
    rig.step()
    rig.add("f", prompt=30, output=5)
    rig.run()
    assert rig.exchange().advised == Advised(6, 1, 130, 0)
