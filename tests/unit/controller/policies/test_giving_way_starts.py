"""A half-computed prompt and who starts while it lets others go first."""

from dataclasses import replace

import numpy as np

from controller.policies.base import Batch
from controller.policies.classed import HEAD_WAITS_STEPS, ClassedStep
from controller.records import EngineState, StepLimits
from tests.builders import limits
from tests.unit.controller.policies.test_classed_step import AGREEMENTS, SIZE, both, half, some


def batch_of(sooner: list[int], *, running: tuple[int, ...] = (), decodes: int = 3) -> Batch:
    """A prompt of the loosest is half computed beside decodes of 50 ms.

    Args:
        sooner: prompt tokens of each that waits, due sooner.
        running: ... and of each that is half computed, as well.
    """
    started = [some([0], 40, 40 + left) for left in running]
    here = both(some([0] * decodes, 100), some([2], 40, 5000), *started)
    return Batch(
        here,
        lambda n: both(some([], 0), *[some([0], 0, prompt) for prompt in sooner]).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(len(here)),
    )


def step(one: ClassedStep, batch: Batch, waiting: int = 1) -> StepLimits:
    return one.limits(EngineState(len(batch.running), waiting, 1000), lambda: batch, limits())


def test_nobody_gives_way_for_sixteen_steps_to_one_that_did_not_start() -> None:
    one, batch = half(), batch_of([3000])
    assert step(one, batch).giving_way == (3,)
    found = [step(one, replace(batch, in_vain=True)).giving_way]
    found += [step(one, batch).giving_way for _ in range(HEAD_WAITS_STEPS)]
    assert found == [()] * (HEAD_WAITS_STEPS - 1) + [(3,)] * 2


def test_one_that_others_left_no_token_for_is_given_way_to_again() -> None:
    # A prompt that is half computed takes the chunk before it.
    one, batch = half(), batch_of([3000], running=(3000,))
    assert step(one, batch).giving_way == (3,)
    assert not one._head_starts
    step(one, replace(batch, in_vain=True))
    assert one._head_waits == 0
    # All of the chunk but a token.
    left = step(one, batch).token_budget - 3
    step(one, batch_of([3000], running=(left,)))
    assert not one._head_starts
    step(one, batch_of([3000], running=(left - 1,)))
    assert one._head_starts


def test_what_did_not_start_counts_for_the_next_step_alone() -> None:
    one, batch = half(), batch_of([3000])
    step(one, batch)
    step(one, replace(batch, waited_s=lambda: np.ones(4)))  # a chunk, once a second
    step(one, replace(batch, in_vain=True))
    assert one._head_waits == 0


def test_with_a_limit_for_long_prompts_sooner_ones_take_no_more_than_that() -> None:
    limited = replace(SIZE, long_prompt_tokens=64)
    batch = batch_of([150])
    assert step(half(), batch).giving_way == (3,)  # of some 210 tokens 60 are left
    found = step(half(limited), batch)
    assert (found.giving_way, found.longest_chunk_tokens) == ((), 64)


def test_in_a_full_step_prompts_are_left_out_whoever_they_would_let_go_first() -> None:
    full = batch_of([], running=(3000,), decodes=150)
    one = half()
    one._prefilling = True
    found = step(one, full, waiting=0)
    assert found.token_budget == 150
    # Not as prompts that give way, which are seen where the others have a lower priority.
    assert (found.left_out, found.giving_way) == ((150, 151), ())
