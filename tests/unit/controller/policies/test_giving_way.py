"""A half-computed prompt lets those go first whose first token is due sooner."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.agreements import Agreement
from controller.models.requests import requests_of
from controller.models.step_time import StepModel
from controller.policies.base import Batch
from controller.policies.registry import make_step_half
from controller.records import EngineLimits, EngineState, StepLimits
from tests.builders import batching, limits
from tests.unit.controller.policies.test_classed_step import (
    AGREEMENTS,
    MODEL,
    SIZE,
    both,
    half,
    some,
)


def under_way(
    kind: int,
    waiting: list[int],
    *,
    prompt: int = 3000,
    waited_s: float = 0.0,
    outputs: int = 0,
    running: int = 4,
    size: EngineLimits = SIZE,
    kv: int = 1000,
) -> StepLimits:
    """A prompt of this agreement is half computed beside three decodes, when others come.

    Beside a decode of 50 ms there is time for some 290 prompt tokens.

    Args:
        prompt: tokens of each that waits.
    """
    here = both(some([0, 1, 2], 100), some([kind], 40, 5000), outputs=[1, 1, 1, outputs])
    batch = Batch(
        here,
        lambda n: some(waiting, 0, prompt).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.array([0.0, 0.0, 0.0, waited_s]),
    )
    found = half(size).limits(EngineState(running, len(waiting), kv), lambda: batch, limits())
    assert not set(found.left_out) & {0, 1, 2}
    assert found.left_out == found.giving_way
    return found


def gives_way(*args: Any, **more: Any) -> bool:
    return under_way(*args, **more).left_out == (3,)


def test_a_half_computed_prompt_gives_way_to_one_whose_first_token_is_due_sooner() -> None:
    assert gives_way(2, [0]) and gives_way(2, [1]) and gives_way(1, [0, 2])
    assert not gives_way(0, [0]) and not gives_way(1, [1]) and not gives_way(0, [1])
    assert not gives_way(2, [2, 0])  # the first in the queue is no sooner due
    assert not gives_way(2, [])


def test_who_has_less_time_between_tokens_gives_way_to_nobody_with_more() -> None:
    odd = AGREEMENTS[1], Agreement(0.05, 99, 9.0)  # 6 s and 100 ms, 9 s and 50 ms
    batch = Batch(
        both(some([0], 100), some([1], 40, 5000)),
        lambda n: some([0], 0, 3000).first(n),
        agreements=odd,
        waited_s=lambda: np.zeros(2),
    )
    assert half().limits(EngineState(2, 1, 1000), lambda: batch, limits()).left_out == ()
    same = AGREEMENTS[0], Agreement(0.05, 99, 9.0)
    found = half().limits(
        EngineState(2, 1, 1000), lambda: replace(batch, agreements=same), limits()
    )
    assert found.left_out == (1,)


def test_what_sooner_ones_leave_of_a_chunk_is_for_the_prompt_that_was_there() -> None:
    found = under_way(2, [0, 2, 2], prompt=20)
    chunk = found.token_budget - 3
    assert found.left_out == ()
    assert (found.longest_chunk_tokens, found.longest_always) == (chunk - 20, True)
    # The others do not start into it.
    assert (found.max_running, found.reason) == (5, "sla")
    assert under_way(2, [0], prompt=20).reason == "load"
    # As much as may be theirs is kept free for them.
    assert not gives_way(2, [0], prompt=chunk // 2)
    assert gives_way(2, [0], prompt=chunk // 2 + 1)
    assert under_way(2, [0, 2], prompt=chunk // 2 + 1).max_running == 5


def test_nobody_gives_way_to_one_that_cannot_start() -> None:
    full = replace(SIZE, max_num_seqs=4)
    assert not gives_way(2, [0], size=full)
    assert under_way(2, [0], size=full).token_budget > 100
    tight = replace(SIZE, kv_tokens=12_000)
    assert not gives_way(2, [0], prompt=9000, size=tight, kv=4000)
    assert gives_way(2, [0], prompt=1000, size=tight, kv=4000)


def test_one_that_cannot_start_is_asked_again_sixteen_steps_later() -> None:
    one, here = half(replace(SIZE, max_num_seqs=4)), both(some([0, 1, 2], 100), some([2], 40, 5000))
    batch = Batch(
        here,
        lambda n: some([0], 0, 3000).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(4),
    )
    for _ in range(40):
        assert one.limits(EngineState(4, 1, 1000), lambda: batch, limits()).left_out == ()
    one._engine, one._b_max = SIZE, 256  # a slot is free
    found = [
        one.limits(EngineState(4, 1, 1000), lambda: batch, limits()).left_out for _ in range(16)
    ]
    assert 0 < found.index((3,)) < 16


def test_where_the_first_of_the_queue_cannot_start_prompts_still_give_way_to_each_other() -> None:
    one = half(replace(SIZE, max_num_seqs=4))
    batch = Batch(
        both(some([0, 0], 100), some([2, 1], 40, 5000)),
        lambda n: some([0], 0, 3000).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(4),
    )
    found = [one.limits(EngineState(4, 1, 1000), lambda: batch, limits()).left_out for _ in "123"]
    assert found == [(), (2,), (2,)]


def test_the_cap_stays_at_the_least_that_is_asked_for() -> None:
    config = batching(policy="adaptive", max_running={"min": 8})
    one = make_step_half(config, SIZE, by_class=True)
    one.receive(limits(model=MODEL))
    batch = Batch(
        both(some([0, 1, 2], 100), some([2], 40, 5000)),
        lambda n: some([0, 2, 2, 2, 2], 0, 20).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(4),
    )
    assert one.limits(EngineState(4, 5, 1000), lambda: batch, limits()).max_running == 8


def test_what_is_left_goes_to_the_soonest_and_counts_what_its_attention_reads() -> None:
    one = half()
    one.receive(limits(model=StepModel(0.02, 2e-4, 0.0, 1e-4, 1e-9, 0.0)))
    prompts = requests_of(
        [40, 100_000], [5000, 200_000], [0, 0], [500, 500], None, np.array([2, 1])
    )
    batch = Batch(
        both(some([0, 1, 2], 100), prompts),
        lambda n: some([0], 0, 20).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(5),
    )
    found = one.limits(EngineState(5, 1, 1000), lambda: batch, limits())
    assert found.left_out == (3,)
    chunk = found.token_budget - 3
    assert found.longest_chunk_tokens == pytest.approx((chunk - 20) / 2, rel=0.02)


def test_near_full_memory_nobody_gives_way() -> None:
    assert gives_way(2, [0], kv=SIZE.kv_tokens - 20_000)
    assert not gives_way(2, [0], kv=SIZE.kv_tokens - 2000)


def test_a_prompt_gives_way_to_one_that_is_half_computed_as_well() -> None:
    running = both(some([0, 1], 100), some([2, 0], 40, 5000))
    batch = Batch(
        running,
        lambda n: some([], 0),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(len(running)),
    )
    one = half()
    one._prefilling = True
    assert one.limits(EngineState(4, 0, 1000), lambda: batch, limits()).left_out == (2,)


def test_a_prompt_that_gives_way_gets_a_chunk_once_a_second() -> None:
    assert gives_way(2, [0], waited_s=0.9)
    assert not gives_way(2, [0], waited_s=1.0)


def test_what_was_lost_is_computed_again_without_giving_way() -> None:
    assert not gives_way(2, [0], outputs=7)


def test_nobody_gives_way_where_drafts_or_whole_blocks_are_computed() -> None:
    assert not gives_way(2, [0], size=replace(SIZE, tokens_per_decode=3))
    assert not gives_way(2, [0], size=replace(SIZE, whole_chunk_tokens=64))


def beside_sooner(*prompts: int) -> StepLimits:
    """A prompt of the loosest is half computed beside three decodes; these are sooner due."""
    batch = Batch(
        both(some([0, 1, 2], 100), some([2], 40, 5000)),
        lambda n: both(*[some([0], 0, prompt) for prompt in prompts]).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(4),
    )
    return half().limits(EngineState(4, len(prompts), 1000), lambda: batch, limits())


def test_as_much_is_left_as_the_largest_of_the_sooner_ones_may_take_and_a_block() -> None:
    chunk = beside_sooner(20).token_budget - 3
    assert chunk in (292, 293)  # 50 - 20.7 ms
    assert beside_sooner(20, 137).left_out == (3,)  # 136 are less than 137
    assert beside_sooner(60, 60).left_out == ()
    assert beside_sooner(60, 60).longest_chunk_tokens == chunk - 120
    assert beside_sooner(*[14] * 20).left_out == (3,)  # 13 are less than a block
    assert beside_sooner(*[14] * 19).left_out == ()


def test_where_prompts_take_no_time_all_that_is_left_goes_to_the_one_that_was_there() -> None:
    one = half()
    one.receive(limits(model=StepModel(0.02, 2e-4, 0.0, 0.0, 0.0, 0.0)))
    batch = Batch(
        both(some([0, 1, 2], 100), some([2], 40, 5000)),
        lambda n: some([0], 0, 20).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(4),
    )
    found = one.limits(EngineState(4, 1, 1000), lambda: batch, limits())
    assert (found.left_out, found.longest_chunk_tokens) == ((), 2045 - 20)


def test_where_nobody_waits_the_cap_is_as_ever() -> None:
    one = half()
    batch = Batch(
        both(some([0, 1], 100), some([2, 0], 40, 5000)),
        lambda n: some([0], 0, 20).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(4),
    )
    one.limits(EngineState(4, 1, 1000), lambda: batch, limits())
    alone = replace(batch, waiting=lambda n: some([], 0))
    found = one.limits(EngineState(4, 0, 1000), lambda: alone, limits())
    assert (found.left_out, found.max_running, found.reason) == ((2,), 4 + 64, "load")


def test_who_could_not_start_is_asked_again_in_the_sixteenth_step_after() -> None:
    one = half(replace(SIZE, max_num_seqs=5))
    batch = Batch(
        both(some([0, 1, 2], 100), some([2], 40, 5000)),
        lambda n: some([0], 0, 3000).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(4),
    )
    found = [
        one.limits(EngineState(running, 1, 1000), lambda: batch, limits()).left_out
        for running in [5] + [4] * 17
    ]
    assert found == [()] * 16 + [(3,)] * 2
