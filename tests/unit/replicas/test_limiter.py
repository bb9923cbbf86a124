"""Limits of a step, by the limits that hold: its chunk, who starts, how prompts share it."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.step_time import StepModel
from controller.records import BatchLimits, ClassTarget, EngineState, Reserve, StepLimits
from replicas.engine.limiter import MOST_SKIPS, STARVED_STEPS, Limiter, long_chunks
from tests.builders import engine, limits

# 20 ms, 0.2 ms a decode, 0.1 us a token of KV, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0, mixed_s=0.001)
ROOMY = 10**7
BLOCK = 16


def limiter(b_min: int = 1, chunks: int | None = None, **of_engine: Any) -> Limiter:
    return Limiter(engine(**{"kv_tokens": ROOMY, **of_engine}), b_min, chunks)


def held(target_ms: float | None = 50, **fields: Any) -> BatchLimits:
    target_s = None if target_ms is None else target_ms / 1000
    known = {"target_s": target_s, "target_full_s": target_s, "model": MODEL, "reserve": Reserve()}
    return limits(**{"max_running": 256, **known, **fields})


def holding(
    decodes: int = 0, waiting: int = 0, prompts: Iterable[tuple[int, int]] = (), **fields: Any
) -> EngineState:
    """Decodes of 300 tokens each, and prompts with so many tokens left and computed."""
    kv = 300 * decodes
    prompts = list(prompts)
    used = kv + sum(computed for _, computed in prompts)
    plain = {"decodes": decodes, "decode_kv_tokens": kv, "prompts": prompts}
    return EngineState(decodes + len(prompts), waiting, used, **{**plain, **fields})


def ask(one: Limiter, state: EngineState, by: BatchLimits, *waiting: int) -> StepLimits:
    """The limits while prompts of these lengths wait."""
    queue = [(tokens, tokens + BLOCK) for tokens in waiting]
    return one.limits(
        replace(state, waiting=max(state.waiting, len(queue))), by, lambda n: queue[:n]
    )


@given(
    decodes=st.integers(1, 100),
    computed=st.integers(0, 5000),
    target_ms=st.floats(45, 200),
    speed=st.floats(0.5, 2.0),
    graph=st.sampled_from([0, 64, 512]),
    eager_ms=st.floats(0, 120),
)
def test_a_chunk_is_the_longest_that_ends_the_step_by_its_target(
    decodes, computed, target_ms, speed, graph, eager_ms
):
    model = replace(MODEL, graph_tokens=graph, eager_s=eager_ms / 1000 if graph else 0.0)
    one = limiter(graph_tokens=graph)
    one.speed.value = speed
    state = holding(decodes, prompts=[(9000, computed)])
    chunk = ask(one, state, held(target_ms, model=model)).token_budget - decodes

    def took_s(tokens: int) -> float:
        context = tokens * computed + tokens * tokens / 2
        on_card_s = speed * MODEL.predict_s(decodes, 300 * decodes, tokens, context)
        return max(on_card_s, model.eager_s if model.eager(decodes, tokens) else 0.0)

    if chunk >= BLOCK:
        assert took_s(chunk) <= target_ms / 1000 * (1 + 1e-9) or (speed > 1 and chunk > 0)
    if speed <= 1 or chunk > BLOCK:
        assert chunk == 2048 - decodes or took_s(chunk + 1) > target_ms / 1000 * (1 - 1e-9)


def test_an_engine_with_nothing_to_prefill_runs_as_it_was_started() -> None:
    assert ask(limiter(), holding(20), held(max_running=64)) == StepLimits(64, 2048, reason="load")


def test_without_decodes_or_a_target_a_step_takes_all_that_the_engine_does() -> None:
    assert ask(limiter(), holding(prompts=[(9000, 0)]), held()).token_budget == 2048
    step = ask(limiter(), holding(20, prompts=[(9000, 0)]), held(None))
    assert (step.token_budget, step.decodes_first) == (2048, False)


def test_decodes_that_leave_nothing_let_one_block_through_after_100_steps() -> None:
    one, state = limiter(), holding(150, prompts=[(9000, 0)])
    chunks = [ask(one, state, held()).token_budget - 150 for _ in range(3 * STARVED_STEPS + 3)]
    assert set(chunks[:STARVED_STEPS]) == {0}
    assert [k for k, chunk in enumerate(chunks) if chunk] == [100, 201, 302]
    assert chunks[100] == BLOCK
    whole = limiter(whole_chunk_tokens=528)
    chunks = [ask(whole, state, held()).token_budget - 150 for _ in range(STARVED_STEPS + 1)]
    assert chunks == [0] * STARVED_STEPS + [528]


def test_below_b_min_a_prompt_gets_on_in_every_step() -> None:
    for b_min, tokens in ((145, 0), (146, BLOCK)):
        one, state = limiter(b_min), holding(145, prompts=[(9000, 0)])
        assert [ask(one, state, held()).token_budget - 145 for _ in range(9)] == [tokens] * 9


def test_the_step_takes_the_least_of_the_classes_that_decode_in_it() -> None:
    at_most = [ClassTarget(s, s, s) for s in (0.0, 0.04, 0.1)]
    state = holding(20, prompts=[(9000, 0)])

    def budget(*counts: int) -> int:
        return ask(limiter(), replace(state, by_class=counts), by).token_budget

    by = held(50, by_class=tuple(at_most))
    strict, silver = (ask(limiter(), state, held(ms)).token_budget for ms in (40, 100))
    assert budget(0, 20) == budget(0, 5, 15) == strict
    assert budget(0, 0, 20) == silver
    assert budget(20) == budget(0, 0, 0, 20) == 2048
    new = replace(state, by_class=(0, 0, 0, 20), itl_s=(math.inf, 0.04, 0.1, 0.04))
    assert ask(limiter(), new, by).token_budget == strict  # of a class that came since


STRICT = held(200, by_class=(ClassTarget(0.0, 0.0), ClassTarget(0.2, 0.2, 0.05)))


@given(
    loose=st.integers(0, 400),
    strict=st.integers(0, 160),
    hurried=st.booleans(),
    speed=st.floats(0.8, 2.0),
)
def test_decodes_without_a_promise_are_skipped_so_that_others_are_in_time(
    loose, strict, hurried, speed
):
    one, both = limiter(), loose + strict
    one.speed.value = speed
    state = holding(both, by_class=(loose, strict), prompts=[(200, 0)], hurried=hurried)
    step = ask(one, replace(state, loose=loose), STRICT)
    left = both - step.skipped
    most = loose - math.ceil(loose / MOST_SKIPS)  # one in 20 has its turn
    assert 0 <= step.skipped <= most

    def took_s(decodes: int, prompt_tokens: int = 0) -> float:
        return MODEL.predict_s(decodes, 300 * decodes, prompt_tokens, 0)

    limit_s = 0.05 / max(speed, 1.0)
    alone_late = took_s(both - most) > limit_s
    assert not step.skipped or (strict and not alone_late)
    if step.skipped:
        assert speed * took_s(left, step.token_budget - left) <= 0.05 * (1 + 1e-3)
        for_decodes_s = 0.02 + (limit_s - 0.02) / (2 if hurried else 1)
        assert took_s(left + 1) > for_decodes_s - 1e-9 or step.skipped == most
    elif strict and most and not alone_late:
        assert took_s(both) <= limit_s * (1 + 1e-9)


def test_none_is_skipped_where_vllm_would_preempt_among_those_that_it_sees() -> None:
    state = replace(holding(300, by_class=(290, 10)), loose=290)
    assert ask(limiter(), state, STRICT).skipped > 0
    full = limiter(kv_tokens=state.kv_used_tokens + 100)
    assert not ask(full, state, STRICT).skipped
    assert not ask(limiter(), replace(state, loose=0), STRICT).skipped
    assert not ask(limiter(), replace(state, decodes=0, decode_kv_tokens=0), STRICT).skipped


def test_drafts_and_decodes_take_their_tokens_of_the_budget_first() -> None:
    state, drafting = holding(10, waiting=1), limiter(tokens_per_decode=4)
    alone = ask(limiter(), state, held(), 9000).token_budget - 10
    assert ask(drafting, state, held(), 9000).token_budget - 40 == alone
    assert ask(drafting, replace(state, drafts=7), held(), 9000).token_budget - 17 == alone


@pytest.mark.parametrize(
    ("state", "by", "queue", "starts", "reason"),
    [
        # All that wait, as far as their prompts begin in the chunk.
        (holding(3), held(None), [100] * 5, 5, "load"),
        (holding(3), held(None), [600] * 30, 4, "bound"),  # 600, 1200, 1800 of 2,045
        (holding(3), held(None), [511, 511, 511, 512, 1], 4, "bound"),
        (holding(3, prompts=[(1000, 1500)]), held(None), [600] * 9, 2, "bound"),
        (holding(3, prompts=[(9000, 0)]), held(None), [10], 0, "bound"),
        (holding(20), held(), [9000] * 5, 1, "sla"),
        # More wait where vLLM keeps them in places of its own.
        (holding(3, waiting=9), held(None), [10], 1, "load"),
        # The cap binds.
        (holding(5), held(None, max_running=8), [10] * 9, 3, "sla"),
        (holding(8), held(None, max_running=8), [10] * 9, 0, "sla"),
        (holding(9), held(None, max_running=8, reason="memory"), [10] * 9, 0, "memory"),
        (holding(7, loading=1), held(None, max_running=8), [10] * 9, 0, "sla"),
        # One always starts in an empty engine.
        (holding(), held(None, max_running=1, reserve=Reserve(10.0**8)), [10] * 9, 1, "memory"),
        (holding(), held(None, reserve=Reserve(10.0**8)), [10**6], 1, "memory"),
        (holding(1), held(None, reserve=Reserve(10.0**8)), [10], 0, "memory"),
    ],
)
def test_as_many_start_as_there_is_room_for(state, by, queue, starts, reason):
    step = ask(limiter(), state, by, *queue)
    assert (step.max_running - state.running, step.reason) == (starts, reason)


def test_b_min_starts_whatever_the_cap_and_memory_say() -> None:
    for by in (held(None, max_running=4), held(None, reserve=Reserve(10.0**8))):
        assert ask(limiter(b_min=32), holding(8), by, *[10] * 40).max_running == 32


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
    st.integers(1, 30),
    st.floats(-500, 500),
    st.floats(0, 300),
    st.integers(0, 500),
)
def test_the_first_that_waits_for_memory_is_the_first_that_does_not_fit(
    queue, decodes, fixed, each, left
):
    """What is free, less half-computed prompts, those before it, and fixed + each x running."""
    state = holding(decodes, prompts=[(left, 60)] if left else [])
    kv_tokens, by = 12_000, held(None, reserve=Reserve(fixed, each))
    step = ask(limiter(kv_tokens=kv_tokens), state, by, *queue)
    starts = step.max_running - state.running

    def fits(n: int) -> bool:
        taken = state.kv_used_tokens + left + sum(t + BLOCK for t in queue[:n])
        return taken + fixed + each * (state.running + n) <= kv_tokens

    chunk = 2048 - decodes - left
    begin = in_chunk = sum(sum(queue[:n]) < chunk for n in range(len(queue)))
    while begin and not fits(begin):
        begin -= 1
    assert starts == begin or (begin > starts and not fits(starts + 1))
    assert (step.reason == "memory") == (starts < in_chunk and not fits(starts + 1))


def test_kv_transfers_that_begin_need_no_chunk_but_a_token() -> None:
    state = holding(150, waiting=3, to_load=2)
    step = ask(limiter(), state, held(), 1, 1, 500)
    assert (step.max_running, step.token_budget, step.counts_loads) == (152, 151, True)


@pytest.mark.parametrize(
    ("itl_ms", "ttft_ms", "chunks"),
    [(50, None, 4), (50, 200, 4), (50, 2000, 40), (35, 1000, 28), (50, 8000, 40), (None, 99, None)],
)
def test_a_prompt_is_long_that_is_late_alone_where_a_ttft_is_set(itl_ms, ttft_ms, chunks):
    assert long_chunks(itl_ms, ttft_ms) == chunks


def test_short_prompts_start_beside_long_ones_and_none_is_long_without_an_sla() -> None:
    state = holding(20, prompts=[(9000, 0)])
    chunk = ask(limiter(), state, held()).token_budget - 20
    step = ask(limiter(chunks=4), state, held(), 60, 40, 9000)
    assert (step.max_running, step.longest_chunk_tokens) == (23, chunk - 100)
    assert step.longest_always
    for one in (limiter(), limiter(chunks=40)):
        step = ask(one, holding(20, prompts=[(4 * chunk + 1, 0)]), held(), 60, 40)
        assert (step.max_running, step.longest_chunk_tokens) == (21, chunk)
        assert not step.longest_always


def test_those_whose_kv_has_come_leave_a_prompt_less_of_the_step() -> None:
    """A step of a decode engine was planned without them, and late by each that joined."""
    prompts = [(9000, 0)]
    several = holding(40, prompts=prompts, loading=5, ready=5)
    as_many = holding(45, prompts=prompts)
    chunk = ask(limiter(), several, held()).token_budget - 45
    assert chunk == ask(limiter(), as_many, held()).token_budget - 45
