"""The step half of ``adaptive`` beside long prompts: who starts, and what one prompt may take."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.models.pace import Leads
from controller.models.requests import Requests
from controller.policies.adaptive import AdaptiveStep
from controller.policies.base import Batch
from tests.builders import batching, engine, limits, state
from tests.unit.controller.policies.test_adaptive_step import (
    MODEL,
    ROOMY,
    ask,
    decoding,
    half,
    prompts,
    requests,
    sized,
)


def test_a_prompt_of_more_than_four_chunks_leaves_room_to_shorter_ones() -> None:
    whole = sized(lambda z: z.chunk(20, 2000, 0, least=16, most=2028))
    s, long = half(50), [*decoding(20), *prompts(4 * whole + 1)]
    step = ask(s, long, prompts(60, 40, 9000))
    assert (step.longest_chunk_tokens, step.longest_always) == (whole - 100, True)
    assert step.max_running == 21 + 2
    # Those that cannot start are left nothing.
    step = ask(half(50, b_max=21), long, prompts(60, 40))
    assert (step.max_running, step.longest_chunk_tokens, step.longest_always) == (21, whole, False)
    step = ask(half(50, kv_tokens=2000 + 4 * whole + 90), long, prompts(60, 40), kv=2000)
    assert (step.max_running, step.reason) == (21, "memory")
    assert step.longest_chunk_tokens == whole


def test_beside_a_long_prompt_eight_of_the_queue_are_looked_at() -> None:
    whole = sized(lambda z: z.chunk(20, 2000, 0, least=16, most=2028))
    running, asked = [*decoding(20), *prompts(4 * whole + 1)], list[int]()

    def waiting(n: int) -> Requests:
        asked.append(n)
        return requests(prompts(*[2] * 20)).first(n)

    live = Batch(requests(running), waiting)
    step = half(50).limits(state(21, 20), lambda: live, limits())
    assert (step.max_running, max(asked)) == (21 + 8, 8)


def test_beside_a_long_prompt_what_begins_like_another_waits() -> None:
    running = requests([*decoding(20), *prompts(9000)])
    live = Batch(running, requests(prompts(20, 20, 20)).first, apart=lambda n: min(n, 2))
    step = half(50).limits(state(21, 3), lambda: live, limits())
    assert (step.max_running, step.reason) == (21 + 2, "sla")
    none = replace(live, apart=lambda n: 0)
    step = half(50).limits(state(21, 3), lambda: none, limits())
    assert (step.max_running, step.longest_always) == (21, False)


@pytest.mark.parametrize("sla", [{"delivery": "paced", "ttft_ms": 2000}, {}])
def test_under_paced_delivery_nobody_shares_a_step(sla: dict[str, Any]) -> None:
    config = batching(policy="adaptive", sla={"itl_ms": 50, **sla})
    s = AdaptiveStep(config, engine(kv_tokens=ROOMY))
    s.receive(limits(model=MODEL))
    live = Batch(requests([*decoding(20), *prompts(9000)]), requests(prompts(60)).first)
    live = replace(live, leads=Leads(np.full(20, 0.01), np.full(20, 10)))
    step = s.limits(state(21, 1), lambda: live, limits())
    assert step.longest_always == (not sla)


def test_a_prompt_that_keeps_its_ttft_alone_is_not_long() -> None:
    config = batching(policy="adaptive", sla={"itl_ms": 50, "ttft_ms": 2000})
    s = AdaptiveStep(config, engine(kv_tokens=ROOMY))
    s.receive(limits(model=MODEL))
    whole = sized(lambda z: z.chunk(20, 2000, 0, least=16, most=2028))
    assert not ask(s, [*decoding(20), *prompts(40 * whole)], prompts(60)).longest_always
    assert ask(s, [*decoding(20), *prompts(40 * whole + 1)], prompts(60)).longest_always
    assert ask(half(50), [*decoding(20), *prompts(40 * whole)], prompts(60)).longest_always


def test_nobody_shares_a_step_where_none_is_long_or_there_is_no_sla() -> None:
    whole = sized(lambda z: z.chunk(20, 2000, 0, least=16, most=2028))
    running = [*decoding(20), *prompts(4 * whole)]
    for s in (half(50), half(50, whole_chunk_tokens=16), half()):
        step = ask(s, running, prompts(60))
        assert not step.longest_always
        assert step.longest_chunk_tokens == step.token_budget - 20
    step = ask(half(50, whole_chunk_tokens=16), [*decoding(20), *prompts(9000)], prompts(60))
    assert not step.longest_always


def test_long_prompts_leave_room_to_short_ones() -> None:
    whole = sized(lambda z: z.chunk(20, 2000, 0, least=16, most=2028))
    s = half(50, long_prompt_tokens=512)
    assert ask(s, decoding(20), prompts(50)).longest_chunk_tokens == whole
    long = [*decoding(20), *prompts(9000)]
    assert ask(s, long, prompts(60, 40, 9000)).longest_chunk_tokens == whole - 100
    assert ask(s, [*long, *prompts(513)], prompts(30, 20)).longest_chunk_tokens == (
        (whole - 50) // 2
    )
    assert ask(s, [*long, *prompts(512)], prompts(60)).longest_chunk_tokens == (whole - 60) // 2


def test_a_long_prompt_takes_no_more_than_the_engine_allows_it() -> None:
    s = half(long_prompt_tokens=512)
    step = ask(s, decoding(3), prompts(9000))
    # The engine was started with a threshold: that it holds needs no saying.
    assert (step.longest_chunk_tokens, step.longest_always) == (512, False)
    running = decoding(3) + prompts(9000, 9000)
    assert ask(s, running, prompts(100, 100)).longest_chunk_tokens == 512
    # 2,045 of a step of 2,048: a quarter of them, where short ones would take nearly all.
    assert ask(s, running, prompts(*[400] * 5)).longest_chunk_tokens == 511


def test_a_long_prompt_that_takes_its_part_leaves_the_rest_to_the_next() -> None:
    # 512 of the one that runs and 512 of each that waits: three more begin in 2,047 tokens.
    s = half(long_prompt_tokens=512)
    step = ask(s, [*decoding(1), *prompts(9000)], prompts(*[9000] * 9))
    assert step.max_running == 2 + 3


@pytest.mark.parametrize("sla", [{"itl_ms": 50}, {}])
def test_decodes_go_before_prompts_where_an_sla_holds_and_else_as_vllm_has_them(
    sla: dict[str, float],
) -> None:
    config = batching(policy="adaptive", sla=sla)
    s = AdaptiveStep(config, engine(kv_tokens=ROOMY))
    assert ask(s, [*decoding(20), *prompts(9000)], prompts(60)).decodes_first == bool(sla)
