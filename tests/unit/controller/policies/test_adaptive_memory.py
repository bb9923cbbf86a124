"""The step half of ``adaptive``: what it counts of KV memory, and of those that wait."""

import numpy as np

from controller.models.step_time import StepModel
from controller.policies.adaptive import AdaptiveStep
from controller.policies.base import Batch
from controller.records import StepLimits
from tests.builders import limits, state
from tests.unit.controller.policies.test_adaptive_step import (
    ask,
    decoding,
    half,
    prompts,
    requests,
)

Rows = list[tuple[int, int, int]]


def beside(
    elsewhere: int, step_half: AdaptiveStep, running: Rows, waiting: Rows, used: int
) -> StepLimits:
    """The limits of a step; of the tokens in use so many are held by requests that do not run."""
    live = Batch(requests(running), requests(waiting).first, held_elsewhere_tokens=elsewhere)
    return step_half.limits(state(len(running), len(waiting), used), lambda: live, limits())


def test_fewer_start_where_requests_that_do_not_run_hold_most_of_what_is_in_use() -> None:
    def step(elsewhere: int) -> StepLimits:
        return beside(elsewhere, half(kv_tokens=5000), decoding(10), prompts(*[100] * 20), 4000)

    assert (step(0).max_running, step(0).reason) == (30, "load")
    assert (step(3000).max_running < 20, step(3000).reason) == (True, "memory")


def test_no_step_reads_what_requests_hold_that_do_not_run() -> None:
    # 20 that read 8,000 tokens each take 40 ms, and 120,000 more are 2 ms too many. Where 150,000
    # of those in use are not theirs, they keep a window of a quarter.
    for elsewhere, cap, reason in ((0, 20, "sla"), (150_000, 21, "load")):
        one = half(50, delivery="paced", kv_tokens=10**8)
        step = beside(elsewhere, one, decoding(20, tokens=8000), prompts(120_000), 190_000)
        assert (step.max_running, step.reason) == (cap, reason)


def starting_after(preempted: int) -> int:
    """How many start once so many waited that had 300 tokens when they were preempted.

    Each of them fills more than a step, so that only the first of them might have started.
    """
    one = half(kv_tokens=2500)
    one.receive(limits(model=StepModel(0.02, 2e-4, 1e-7, 1e-3, 1e-8, 0.0)))
    for _ in range(50):
        one.finished(20)
    assert ask(one, decoding(3), [(0, 3000, 300)] * preempted, kv=300).max_running == 3
    return ask(one, decoding(3), prompts(*[10] * 64), kv=300).max_running - 3


def test_all_that_were_preempted_say_how_long_answers_are() -> None:
    assert starting_after(20) < 0.8 * starting_after(1)


def outranking(of_running: list[int], of_waiting: list[int], used: int) -> StepLimits:
    """Ten run with 400 tokens each, answers have 300; KV memory has 5,000."""
    one = half(50, kv_tokens=5000)
    for _ in range(50):
        one.finished(300)
    live = Batch(
        requests(decoding(10, tokens=400)),
        requests(prompts(*[50] * len(of_waiting))).first,
        priorities=lambda n: (np.array(of_running), np.array(of_waiting[:n])),
    )
    return one.limits(state(10, len(of_waiting), used), lambda: live, limits())


def test_the_important_start_as_if_the_less_important_were_not_there() -> None:
    assert outranking([1] * 10, [1] * 4, 4000).max_running == 10
    assert outranking([1] * 10, [0] * 4, 4000).max_running == 14
    assert outranking([1] * 10, [0, 0, 1, 1], 4000).max_running == 12
    assert outranking([0] * 10, [0] * 4, 4000).max_running == 10
    assert outranking([0] * 9 + [1], [0] * 4, 4000).max_running == 10  # one of 400 is too little


def test_the_important_start_where_there_is_room_now() -> None:
    # 50 tokens each, and a block.
    assert outranking([1] * 10, [0] * 4, 4850).max_running == 12
    assert outranking([1] * 10, [0] * 4, 4950).max_running == 10


def test_in_an_empty_engine_one_starts_however_long_it_becomes() -> None:
    # Of 4,000 tokens that it may have, each makes steps 20 us longer: 80 ms.
    one = half(50, kv_tokens=10**9)
    one.receive(limits(model=StepModel(0.02, 2e-4, 2e-5, 1e-4, 1e-9, 0.0)))
    for _ in range(50):
        one.finished(4000)
    assert ask(one, [], prompts(100, 100)).max_running == 1
    assert ask(one, decoding(1), prompts(100, 100)).max_running == 1
