"""``adaptive`` where classes differ: who runs in a step, and what the step is given."""

from dataclasses import replace

import numpy as np
import pytest

from controller.agreements import Agreement
from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.policies.adaptive import AdaptiveStep
from controller.policies.base import Batch
from controller.policies.classed import ClassedStep
from controller.policies.registry import make_step_half
from controller.records import EngineLimits, EngineState, StepLimits
from tests.builders import batching, engine, limits

# 20.1 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.0201, 2e-4, 0.0, 1e-4, 0.0, 0.0)
AGREEMENTS = (Agreement(0.05, 99, 2.0), Agreement(0.1, 99, 6.0), Agreement())
SIZE = engine(kv_tokens=10**6)


def half(size: EngineLimits = SIZE, **sla: float) -> ClassedStep:
    one = make_step_half(batching(policy="adaptive", sla=sla), size, by_class=True)
    assert isinstance(one, ClassedStep)
    one.receive(limits(model=MODEL))
    return one


def some(kinds: list[int], computed: int, prompt: int = 100) -> Requests:
    n = len(kinds)
    outputs = [int(computed >= prompt)] * n
    numbers = np.array(kinds, dtype=np.int64)
    return requests_of([computed] * n, [prompt] * n, outputs, [500] * n, None, numbers)


def asked(one: ClassedStep, kinds: list[int], waiting: list[int], kv: int = 0) -> StepLimits:
    """With decodes of these agreements, and prompts of 100 tokens that wait."""
    batch = Batch(
        some(kinds, 100),
        lambda n: some(waiting, 0).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(len(kinds)),
    )
    state = EngineState(len(kinds), len(waiting), kv or 112 * len(kinds))
    return one.limits(state, lambda: batch, limits())


def test_only_where_classes_differ_and_every_gap_counts() -> None:
    config = batching(policy="adaptive", sla={"itl_ms": 50})
    assert type(make_step_half(config, SIZE)) is AdaptiveStep
    assert type(make_step_half(config, SIZE, by_class=True)) is ClassedStep
    paced = batching(policy="adaptive", sla={"itl_ms": 50, "delivery": "paced"})
    assert type(make_step_half(paced, SIZE, by_class=True)) is AdaptiveStep
    static = make_step_half(batching(policy="static"), SIZE, by_class=True)
    assert not isinstance(static, AdaptiveStep)


def test_without_a_bound_in_the_batch_a_step_is_as_large_as_the_engine_has_it() -> None:
    found = asked(half(), [2] * 200, [2] * 30)
    assert (found.token_budget, found.max_running, found.left_out) == (2048, 219, ())


def test_by_class_nobody_shares_a_step() -> None:
    # Who goes first is a matter of what is due when.
    here = both(some([0, 1], 100), some([0], 40, 500_000))
    batch = Batch(
        here,
        lambda n: some([0], 0, 60).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(3),
    )
    found = half(itl_ms=50.0).limits(EngineState(3, 1, 1000), lambda: batch, limits())
    assert (found.max_running, found.longest_always) == (3, False)


def test_a_strict_request_that_has_come_shortens_the_next_step() -> None:
    found = asked(half(), [2] * 200 + [0], [2] * 30)
    # 29.9 ms beside the fixed part are 149 decodes.
    assert len(found.left_out) == 201 - 149
    assert 200 not in found.left_out
    assert found.token_budget - 149 in (0, 1)  # less than a block for prompts
    assert found.max_running == 201  # nobody is preempted, and nobody of those that wait starts
    assert found.reason == "sla"


def test_a_strict_request_that_waits_starts_beside_decodes_that_can_wait() -> None:
    # Nobody decodes in time for anything yet: one step more with all of the engine's budget.
    found = asked(half(), [2] * 200, [0])
    assert (found.max_running, found.left_out, found.token_budget) == (201, (), 2048)
    found = asked(half(), [2] * 200 + [0], [0, 2])
    # Its prompt of 100 tokens takes 10 of the 29.7 ms before the others decode.
    assert found.max_running == 202
    assert found.token_budget - (201 - len(found.left_out)) >= 100


def test_without_prompts_the_others_are_left_out_as_well() -> None:
    found = asked(half(), [2] * 200 + [0], [])
    assert len(found.left_out) == 201 - 149
    assert found.reason == "load"


def test_nobody_is_left_out_where_memory_is_about_to_overflow() -> None:
    one = half(engine(kv_tokens=30_000))
    assert asked(one, [2] * 200 + [0], [], kv=27_000).left_out
    assert asked(one, [2] * 200 + [0], [], kv=28_500).left_out == ()


def test_nobody_is_left_out_whose_drafts_would_be_stale() -> None:
    drafting = replace(SIZE, tokens_per_decode=3)
    assert asked(half(drafting), [2] * 200 + [0], []).left_out == ()
    assert asked(half(), [2] * 200 + [0], []).left_out


def test_who_runs_with_nobody_else_is_served() -> None:
    one = half()
    empty = Batch(some([], 0), lambda n: some([0], 0).first(n), agreements=AGREEMENTS)
    found = one.limits(EngineState(0, 1, 0), lambda: empty, limits())
    assert found.max_running >= 1
    assert replace(found, reason=None).left_out == ()


def test_prompts_of_running_requests_count_as_wanted_by_their_class() -> None:
    one = half()
    decodes, prompt = some([2] * 99 + [0], 100), some([0], 40, 5000)
    running = Requests(
        **{
            name: np.concatenate([getattr(decodes, name), getattr(prompt, name)])
            for name in ("computed", "tokens", "outputs", "allowed", "numbers")
        }
    )
    batch = Batch(
        running,
        lambda n: some([2], 0),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(len(running)),
    )
    found = one.limits(EngineState(101, 1, 20_000), lambda: batch, limits())
    assert len(found.left_out) == 99 - 5  # their turn, once a second; the rest is the prompt's
    assert found.token_budget in (6 + 286, 6 + 287)


def both(*parts: Requests, outputs: list[int] | None = None) -> Requests:
    columns = {
        name: np.concatenate([getattr(one, name) for one in parts])
        for name in ("computed", "tokens", "outputs", "allowed", "numbers")
    }
    return Requests(**columns if outputs is None else columns | {"outputs": np.array(outputs)})


def test_where_decodes_fill_a_step_a_half_computed_prompt_takes_no_token_of_it() -> None:
    for outputs in (0, 7):  # one that lost its KV blocks, too
        running = both(some([0] * 150, 100), some([0], 40, 5000), outputs=[1] * 150 + [outputs])
        batch = Batch(
            running,
            lambda n: some([0], 0).first(n),
            agreements=AGREEMENTS,
            waited_s=lambda: np.zeros(151),
        )
        found = half().limits(EngineState(151, 1, 20_000), lambda held=batch: held, limits())
        assert (found.token_budget, found.left_out, found.giving_way) == (150, (150,), ())


def test_where_others_are_left_out_a_step_is_full_of_those_that_are_not() -> None:
    running = both(some([0] * 150 + [2] * 50, 100), some([2], 40, 5000))
    batch = Batch(
        running,
        lambda n: some([2], 0).first(n),
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(201),
    )
    found = half().limits(EngineState(201, 1, 20_000), lambda: batch, limits())
    assert (found.token_budget, found.left_out) == (150, tuple(range(150, 201)))


def tight(
    kinds: list[int],
    waiting: list[int],
    size: EngineLimits,
    kv: int,
    *,
    computed: int = 100,
    elsewhere: int = 0,
) -> StepLimits:
    """With decodes of so many tokens, and prompts of 20 that wait."""
    batch = Batch(
        some(kinds, computed, 96),
        lambda n: some(waiting, 0, 20).first(n),
        held_elsewhere_tokens=elsewhere,
        agreements=AGREEMENTS,
        waited_s=lambda: np.zeros(len(kinds)),
    )
    state = EngineState(len(kinds), len(waiting), kv)
    return half(size).limits(state, lambda: batch, limits())


def test_who_is_left_out_of_a_step_keeps_memory_that_others_cannot_have() -> None:
    kinds = [2] * 200 + [0]
    found = tight(kinds, [0] * 20, engine(kv_tokens=26_000), 22_512)
    assert (found.max_running, found.reason) == (201, "memory")
    assert len(found.left_out) > 150
    assert tight(kinds, [0] * 20, SIZE, 22_512).max_running > 201


def test_what_others_hold_that_do_not_run_is_counted() -> None:
    size = engine(kv_tokens=14_000)
    assert tight([2] * 30, [2] * 20, size, 13_000).max_running == 50
    found = tight([2] * 30, [2] * 20, size, 13_000, elsewhere=10_000)
    assert (30 <= found.max_running < 50, found.reason) == (True, "memory")


def test_a_step_may_take_a_block_for_each_that_fills_one_and_all_of_its_prompts() -> None:
    # 149 of 201 decode. At a multiple of 16 tokens each needs a block; at one more nobody does.
    kinds, size = [2] * 200 + [0], engine(kv_tokens=30_000)
    for computed, new in ((96, 149 * 16 + 2048), (97, 2048), (112, 149 * 16 + 2048)):
        assert len(tight(kinds, [], size, 30_000 - new, computed=computed).left_out) == 52
        assert tight(kinds, [], size, 30_001 - new, computed=computed).left_out == ()


@pytest.mark.parametrize("enforce", [True, False])
def test_a_gap_after_a_preemption_is_its_own_agreements_and_only_where_limits_apply(
    enforce: bool,
) -> None:

    one = half()
    one.receive(limits(model=MODEL, enforce=enforce))
    asked(one, [0, 1], [0])
    sizers = one._by_class._sizers
    one.resumed(9.0, 1)
    moved = {key for key, sizer in sizers.items() if sizer._target.not_caused}
    assert moved == ({(0.1, 99)} if enforce else set())


def test_one_without_a_bound_waits_for_those_left_out_as_well() -> None:

    one = half()
    assert asked(one, [2] * 200 + [0], [2]).left_out
    rest = Batch(some([0], 100), lambda n: some([2], 0).first(n), agreements=AGREEMENTS)
    assert one._fitting(EngineState(201, 1, 22_512), rest, some([2], 0)) == (0, "sla")


def test_decodes_go_before_prompts_where_classes_differ_too() -> None:
    assert asked(half(itl_ms=50), [0, 1, 2], [0]).decodes_first
