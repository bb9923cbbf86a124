"""``adaptive`` where classes differ: who runs in a step, who gives way in it, and what it is given.

A half-computed prompt lets those go first whose first token is due sooner.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.policies.adaptive import AdaptiveStep
from controller.policies.base import Batch
from controller.policies.chunk import GapChunks
from controller.policies.class_chunks import ClassChunks
from controller.policies.classed import HEAD_WAITS_STEPS
from controller.policies.paced import PacedChunks
from controller.policies.registry import make_step_half
from controller.records import EngineLimits, EngineState, StepLimits
from controller.request_slo import RequestSlo
from controller.roles import as_prefill
from tests.builders import batching, engine, limits

# 20.1 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.0201, 2e-4, 0.0, 1e-4, 0.0, 0.0)
SLOS = (RequestSlo(0.05, 99, 2.0), RequestSlo(0.1, 99, 6.0), RequestSlo(ttft_s=600.0))
SIZE = engine(kv_tokens=10**6)
CROWD = [2] * 200 + [0]  # of which 149 have time in a step: 29.9 ms beside the fixed part
COLUMNS = ("computed", "tokens", "outputs", "allowed", "own_slo_ids")


def half(size: EngineLimits = SIZE, model: StepModel = MODEL, **sla: float) -> AdaptiveStep:
    one = AdaptiveStep(batching(policy="adaptive", sla=sla), size, by_class=True)
    one.receive(limits(model=model))
    return one


def some(kinds: Sequence[int], computed: int, prompt: int = 100) -> Requests:
    """One of each of these slos, with so many tokens computed."""
    n = len(kinds)
    outputs = [int(computed >= prompt)] * n
    numbers = np.array(kinds, dtype=np.int64)
    return requests_of([computed] * n, [prompt] * n, outputs, [500] * n, None, numbers)


def both(*parts: Requests, outputs: list[int] | None = None) -> Requests:
    columns = {name: np.concatenate([getattr(one, name) for one in parts]) for name in COLUMNS}
    return Requests(**columns if outputs is None else columns | {"outputs": np.array(outputs)})


def batch_of(running: Requests, waiting: Requests | None = None, **more: Any) -> Batch:
    queue, nobody = waiting or some([], 0), np.zeros(len(running))
    return Batch(running, queue.first, **{"slos": SLOS, "waited_s": lambda: nobody, **more})


def step(one: AdaptiveStep, batch: Batch, kv: int = 1000, running: int | None = None) -> StepLimits:
    running = len(batch.running) if running is None else running
    state = EngineState(running, len(batch.waiting(99)), kv)
    return one.limits(state, lambda: batch, limits())


def asked(one: AdaptiveStep, kinds: list[int], waiting: list[int], kv: int = 0) -> StepLimits:
    """With decodes of these slos, and prompts of 100 tokens that wait."""
    return step(one, batch_of(some(kinds, 100), some(waiting, 0)), kv or 112 * len(kinds))


def test_only_where_classes_differ_and_every_gap_counts() -> None:
    def kind(by_class: bool, **sla: Any) -> type:
        config = batching(policy="adaptive", sla=sla)
        return type(AdaptiveStep(config, SIZE, by_class=by_class)._chunks)

    assert kind(False, itl_ms=50) is GapChunks
    assert kind(True, itl_ms=50) is kind(True) is ClassChunks
    assert kind(True, itl_ms=50, delivery="paced") is PacedChunks
    assert kind(False) is type(None)


@pytest.mark.parametrize("delivery", ["gaps", "paced"])
def test_an_engine_that_computes_prompts_for_others_is_bound_by_no_class(delivery: str) -> None:
    config = batching(policy="adaptive", sla={"itl_ms": 50, "delivery": delivery}, roles="auto")
    one = AdaptiveStep(as_prefill(config), SIZE, by_class=True)
    one.receive(limits(model=MODEL))
    found = asked(one, CROWD, [0] * 30)
    assert (found.token_budget, found.skipped) == (2048, ())
    prompts = step(one, batch_of(some([0] * 200, 40), some([0] * 30, 0)), kv=8000)
    assert prompts == step(one, batch_of(some([2] * 200, 40), some([2] * 30, 0)), kv=8000)


def test_without_a_bound_in_the_batch_a_step_is_as_large_as_the_engine_has_it() -> None:
    found = asked(half(), [2] * 200, [2] * 30)
    assert (found.token_budget, found.max_running, found.skipped) == (2048, 219, ())


def test_by_class_nobody_shares_a_step_and_decodes_go_before_prompts() -> None:
    # Who goes first is a matter of what is due when.
    running = both(some([0, 1], 100), some([0], 40, 500_000))
    found = step(half(itl_ms=50.0), batch_of(running, some([0], 0, 60)))
    assert (found.max_running, found.longest_always) == (3, False)
    assert asked(half(itl_ms=50), [0, 1, 2], [0]).decodes_first


def test_a_strict_request_that_has_come_shortens_the_next_step() -> None:
    found = asked(half(), CROWD, [2] * 30)
    assert len(found.skipped) == 201 - 149
    assert 200 not in found.skipped
    assert found.token_budget - 149 in (0, 1)  # less than a block for prompts
    # Nobody is preempted, and nobody of those that wait starts.
    assert (found.max_running, found.reason) == (201, "sla")
    found = asked(half(), CROWD, [])  # without prompts they are left out as well
    assert (len(found.skipped), found.reason) == (201 - 149, "load")


def test_a_strict_request_that_waits_starts_beside_decodes_that_can_wait() -> None:
    # Nobody decodes in time for anything yet: one step more with all of the engine's budget.
    found = asked(half(), [2] * 200, [0])
    assert (found.max_running, found.skipped, found.token_budget) == (201, (), 2048)
    found = asked(half(), CROWD, [0, 2])
    # Its prompt of 100 tokens takes 10 of the 29.7 ms before the others decode.
    assert found.max_running == 202
    assert found.token_budget - (201 - len(found.skipped)) >= 100


@pytest.mark.parametrize(
    ("size", "kv", "out"),
    [
        ({"kv_tokens": 30_000}, 27_000, True),
        ({"kv_tokens": 30_000}, 28_500, False),  # memory is about to overflow
        ({"tokens_per_decode": 3}, 0, False),  # drafts would be stale
        ({}, 0, True),
    ],
)
def test_nobody_is_left_out_near_full_memory_or_with_drafts(size, kv, out):
    assert bool(asked(half(replace(SIZE, **size)), CROWD, [], kv=kv).skipped) is out


def test_who_runs_with_nobody_else_is_served() -> None:
    found = step(half(), batch_of(some([], 0), some([0], 0)), kv=0)
    assert found.max_running >= 1
    assert found.skipped == ()


def test_prompts_of_running_requests_count_as_wanted_by_their_class() -> None:
    running = both(some([2] * 99 + [0], 100), some([0], 40, 5000))
    found = step(half(), batch_of(running, some([2], 0)), 20_000)
    assert len(found.skipped) == 99 - 5  # their turn, once a second; the rest is the prompt's
    assert found.token_budget in (6 + 286, 6 + 287)


def test_a_full_step_has_no_token_for_those_left_out() -> None:
    for outputs in (0, 7):  # a half-computed prompt, and one that lost its KV blocks
        running = both(some([0] * 150, 100), some([0], 40, 5000), outputs=[1] * 150 + [outputs])
        found = step(half(), batch_of(running, some([0], 0)), 20_000)
        assert (found.token_budget, found.skipped, found.deferred) == (150, (150,), ())
    running = both(some([0] * 150 + [2] * 50, 100), some([2], 40, 5000))
    found = step(half(), batch_of(running, some([2], 0)), 20_000)
    assert (found.token_budget, found.skipped) == (150, tuple(range(150, 201)))


def tight(
    kinds: list[int], waiting: list[int], kv_tokens: int, kv: int, computed: int = 100, **more: int
) -> StepLimits:
    """With decodes of so many tokens, and prompts of 20 that wait."""
    batch = batch_of(some(kinds, computed, 96), some(waiting, 0, 20), **more)
    return step(half(engine(kv_tokens=kv_tokens)), batch, kv)


def test_who_is_left_out_of_a_step_keeps_memory_that_others_cannot_have() -> None:
    found = tight(CROWD, [0] * 20, 26_000, 22_512)
    assert (found.max_running, found.reason) == (201, "memory")
    assert len(found.skipped) > 150
    assert tight(CROWD, [0] * 20, 10**6, 22_512).max_running > 201


def test_what_others_hold_that_do_not_run_is_counted() -> None:
    assert tight([2] * 30, [2] * 20, 14_000, 13_000).max_running == 50
    found = tight([2] * 30, [2] * 20, 14_000, 13_000, not_running_tokens=10_000)
    assert (30 <= found.max_running < 50, found.reason) == (True, "memory")


def test_a_step_may_take_a_block_for_each_that_fills_one_and_all_of_its_prompts() -> None:
    # 149 of 201 decode. At a multiple of 16 tokens each needs a block; at one more nobody does.
    for computed, new in ((96, 149 * 16 + 2048), (97, 2048), (112, 149 * 16 + 2048)):
        assert len(tight(CROWD, [], 30_000, 30_000 - new, computed).skipped) == 52
        assert tight(CROWD, [], 30_000, 30_001 - new, computed).skipped == ()


@pytest.mark.parametrize("enforce", [True, False])
def test_a_gap_after_a_preemption_is_its_own_agreements_and_only_where_limits_apply(enforce):
    one = half()
    one.receive(limits(model=MODEL, enforce=enforce))
    asked(one, [0, 1], [0])
    one.resumed(9.0, 1)
    moved = {key for key, each in one._chunks._sizers.items() if each.target.late_anyway}
    assert moved == ({(0.1, 99)} if enforce else set())


def test_one_without_a_bound_waits_for_those_left_out_as_well() -> None:
    one = half()
    assert asked(one, CROWD, [2]).skipped
    whole = some(CROWD, 100)
    rest = batch_of(some([0], 100), some([2], 0), waited_s=None, whole=whole)
    one_more = some([2], 0)
    assert one._fitting(EngineState(201, 1, 22_512), rest, one_more, one_more.outputs) == (0, "sla")


LOOSE = (2,)  # slos of prompts that are half computed


def beside_decodes(
    sooner: Sequence[int],
    *,
    half_computed: Sequence[int] = LOOSE,
    kinds: Sequence[int] = (0, 1, 2),
    outputs: int = 0,
    **more: Any,
) -> Batch:
    """Prompts of 5,000 tokens are half computed beside three decodes, when these come.

    Beside a decode of 50 ms there is time for some 290 prompt tokens.

    Args:
        sooner: prompt tokens of each that waits, of the strictest SLO.
        outputs: that the first of the half computed has generated already.
    """
    given = [1] * len(kinds) + [outputs] + [0] * (len(half_computed) - 1)
    running = both(some(kinds, 100), some(half_computed, 40, 5000), outputs=given)
    return batch_of(running, both(some([], 0), *[some([0], 0, n) for n in sooner]), **more)


def under_way(
    kind: int,
    waiting: list[int],
    *,
    prompt: int = 3000,
    waited_s: float = 0.0,
    outputs: int = 0,
    size: EngineLimits = SIZE,
    kv: int = 1000,
) -> StepLimits:
    """A prompt of this SLO is half computed when others of ``prompt`` tokens come."""
    here = beside_decodes([], half_computed=(kind,), outputs=outputs)
    waited = np.array([0.0, 0.0, 0.0, waited_s])
    batch = batch_of(here.running, some(waiting, 0, prompt), waited_s=lambda: waited)
    found = step(half(size), batch, kv)
    assert not set(found.skipped) & {0, 1, 2}
    assert found.skipped == found.deferred
    return found


@pytest.mark.parametrize(
    ("kind", "waiting", "how", "gives_way"),
    [
        *(  # to one whose first token is due sooner
            (kind, waiting, {}, True) for kind, waiting in ((2, [0]), (2, [1]), (1, [0, 2]))
        ),
        *((kind, waiting, {}, False) for kind, waiting in ((0, [0]), (1, [1]), (0, [1]))),
        (2, [2, 0], {}, False),  # the first in the queue is no sooner due
        (2, [], {}, False),
        (2, [0], {"size": replace(SIZE, max_num_seqs=4)}, False),  # it cannot start
        (2, [0], {"prompt": 9000, "size": replace(SIZE, kv_tokens=12_000), "kv": 4000}, False),
        (2, [0], {"prompt": 1000, "size": replace(SIZE, kv_tokens=12_000), "kv": 4000}, True),
        (2, [0], {"kv": SIZE.kv_tokens - 20_000}, True),
        (2, [0], {"kv": SIZE.kv_tokens - 2000}, False),  # memory is nearly full
        (2, [0], {"waited_s": 0.9}, True),
        (2, [0], {"waited_s": 1.0}, False),  # a chunk once a second
        (2, [0], {"outputs": 7}, False),  # what was lost is computed again
        (2, [0], {"size": replace(SIZE, tokens_per_decode=3)}, False),
        (2, [0], {"size": replace(SIZE, whole_chunk_tokens=64)}, False),
    ],
)
def test_a_half_computed_prompt_gives_way(kind, waiting, how, gives_way):
    assert (under_way(kind, waiting, **how).skipped == (3,)) is gives_way


def test_who_has_less_time_between_tokens_gives_way_to_nobody_with_more() -> None:
    running = both(some([0], 100), some([1], 40, 5000))
    for first, out in ((RequestSlo(0.1, 99, 6.0), ()), (SLOS[0], (1,))):
        batch = batch_of(running, some([0], 0, 3000), slos=(first, RequestSlo(0.05, 99, 9.0)))
        assert step(half(), batch).skipped == out


def test_what_sooner_ones_leave_of_a_chunk_is_for_the_prompt_that_was_there() -> None:
    found = under_way(2, [0, 2, 2], prompt=20)
    chunk = found.token_budget - 3
    assert found.skipped == ()
    assert (found.longest_chunk_tokens, found.longest_always) == (chunk - 20, True)
    # The others do not start into it.
    assert (found.max_running, found.reason) == (5, "sla")
    assert under_way(2, [0], prompt=20).reason == "load"
    # As much as may be theirs is kept free for them.
    assert under_way(2, [0], prompt=chunk // 2).skipped == ()
    assert under_way(2, [0], prompt=chunk // 2 + 1).skipped == (3,)
    assert under_way(2, [0, 2], prompt=chunk // 2 + 1).max_running == 5


def test_as_much_is_left_as_the_largest_of_the_sooner_ones_may_take_and_a_block() -> None:
    def beside(*sooner: int) -> StepLimits:
        return step(half(), beside_decodes(sooner))

    chunk = beside(20).token_budget - 3
    assert chunk in (292, 293)  # 50 - 20.7 ms
    assert beside(20, 137).skipped == (3,)  # 136 are less than 137
    assert beside(60, 60).skipped == ()
    assert beside(60, 60).longest_chunk_tokens == chunk - 120
    assert beside(*[14] * 20).skipped == (3,)  # 13 are less than a block
    assert beside(*[14] * 19).skipped == ()


def test_where_prompts_take_no_time_all_that_is_left_goes_to_the_one_that_was_there() -> None:
    one = half(model=StepModel(0.02, 2e-4, 0.0, 0.0, 0.0, 0.0))
    found = step(one, beside_decodes([20]))
    assert (found.skipped, found.longest_chunk_tokens) == ((), 2045 - 20)


def test_what_is_left_goes_to_the_soonest_and_counts_what_its_attention_reads() -> None:
    one = half(model=StepModel(0.02, 2e-4, 0.0, 1e-4, 1e-9, 0.0))
    prompts = requests_of(
        [40, 100_000], [5000, 200_000], [0, 0], [500, 500], None, np.array([2, 1])
    )
    found = step(one, batch_of(both(some([0, 1, 2], 100), prompts), some([0], 0, 20)))
    assert found.skipped == (3,)
    chunk = found.token_budget - 3
    assert found.longest_chunk_tokens == pytest.approx((chunk - 20) / 2, rel=0.02)


def test_with_a_limit_for_long_prompts_sooner_ones_take_no_more_than_that() -> None:
    batch = beside_decodes([150])
    assert step(half(), batch).deferred == (3,)  # of some 210 tokens 60 are left
    found = step(half(replace(SIZE, long_prompt_tokens=64)), batch)
    assert (found.deferred, found.longest_chunk_tokens) == ((), 64)


def test_where_the_first_of_the_queue_cannot_start_prompts_still_give_way_to_each_other() -> None:
    one = half(replace(SIZE, max_num_seqs=4))
    batch = beside_decodes([3000], kinds=(0, 0), half_computed=(2, 1))
    assert [step(one, batch).skipped for _ in "123"] == [(), (2,), (2,)]


def test_a_prompt_gives_way_to_one_that_is_half_computed_and_the_cap_is_as_ever() -> None:
    one = half()
    batch = beside_decodes([20], kinds=(0, 1), half_computed=(2, 0))
    step(one, batch)
    found = step(one, replace(batch, waiting=lambda n: some([], 0)))
    assert (found.skipped, found.max_running, found.reason) == ((2,), 4 + 64, "load")


def test_the_cap_stays_at_the_least_that_is_asked_for() -> None:
    config = batching(policy="adaptive", max_running={"min": 8})
    one: Any = make_step_half(config, SIZE, by_class=True)
    one.receive(limits(model=MODEL))
    batch = replace(beside_decodes([]), waiting=some([0, 2, 2, 2, 2], 0, 20).first)
    assert step(one, batch).max_running == 8


def test_in_a_full_step_prompts_are_left_out_whoever_they_would_let_go_first() -> None:
    one = half()
    one._prefilling = True
    found = step(one, beside_decodes([], kinds=(0,) * 150, half_computed=(2, 0)))
    assert found.token_budget == 150
    # Not as prompts that give way, which are seen where the others have a lower priority.
    assert (found.skipped, found.deferred) == ((150, 151), ())


def test_one_that_cannot_start_is_asked_again_in_the_sixteenth_step_after() -> None:
    one, batch = half(replace(SIZE, max_num_seqs=5)), beside_decodes([3000])
    found = [step(one, batch, running=n).skipped for n in [5] + [4] * 17]
    assert found == [()] * 16 + [(3,)] * 2


def test_nobody_gives_way_for_sixteen_steps_to_one_that_did_not_start() -> None:
    one, batch = half(), beside_decodes([3000])
    assert step(one, batch).deferred == (3,)
    found = [step(one, replace(batch, deferred_in_vain=True)).deferred]
    found += [step(one, batch).deferred for _ in range(HEAD_WAITS_STEPS)]
    assert found == [()] * (HEAD_WAITS_STEPS - 1) + [(3,)] * 2


def test_one_that_others_left_no_token_for_is_given_way_to_again() -> None:
    def with_sooner(left: int) -> Batch:
        """A prompt that is half computed as well takes the chunk before it."""
        here = both(some([0] * 3, 100), some([2], 40, 5000), some([0], 40, 40 + left))
        return batch_of(here, some([0], 0, 3000))

    one, batch = half(), with_sooner(3000)
    assert step(one, batch).deferred == (3,)
    assert not one._class_steps._head_starts
    step(one, replace(batch, deferred_in_vain=True))
    assert one._class_steps._head_waits == 0
    # All of the chunk but a token.
    left = step(one, batch).token_budget - 3
    step(one, with_sooner(left))
    assert not one._class_steps._head_starts
    step(one, with_sooner(left - 1))
    assert one._class_steps._head_starts


def test_what_did_not_start_counts_for_the_next_step_alone() -> None:
    one, batch = half(), beside_decodes([3000])
    step(one, batch)
    step(one, replace(batch, waited_s=lambda: np.ones(4)))  # a chunk, once a second
    step(one, replace(batch, deferred_in_vain=True))
    assert one._class_steps._head_waits == 0
