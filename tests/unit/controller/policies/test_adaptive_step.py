"""The step half of ``adaptive``: who starts and how many tokens a step gets, number by number."""

from collections.abc import Callable
from typing import Any

import pytest

from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.policies.adaptive import AdaptiveStep
from controller.policies.base import Batch
from controller.policies.chunk import ChunkSizer
from controller.policies.paced import PacedChunks
from controller.records import StepLimits, StepSample
from tests.builders import batching, engine, limits, sample, state

# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0)
ROOMY = 10**7  # tokens of KV memory: all that any request may generate


def half(itl_ms: float | None = None, **of_engine: Any) -> AdaptiveStep:
    bounds = {"min": of_engine.pop("b_min", 1), "max": of_engine.pop("b_max", None)}
    sla = {"itl_ms": itl_ms, "delivery": of_engine.pop("delivery", "gaps")}
    config = batching(policy="adaptive", sla=sla, max_running=bounds)
    step_half = AdaptiveStep(config, engine(**{"kv_tokens": ROOMY, **of_engine}))
    if itl_ms is not None:
        step_half.receive(limits(model=MODEL))
    return step_half


def decoding(n: int, tokens: int = 100) -> list[tuple[int, int, int]]:
    """Rows of (computed, prompt, outputs) of n that decode."""
    return [(tokens, tokens - 10, 10)] * n


def prompts(*tokens: int, computed: int = 0) -> list[tuple[int, int, int]]:
    return [(computed, length, 0) for length in tokens]


def requests(rows: list[tuple[int, int, int]]) -> Requests:
    computed, prompt, outputs = zip(*rows, strict=True) if rows else ((), (), ())
    return requests_of(computed, prompt, outputs, [4000] * len(rows))


def ask(
    step_half: AdaptiveStep,
    running: list[tuple[int, int, int]],
    waiting: list[tuple[int, int, int]],
    *,
    elsewhere: int = 0,
    kv: int = 0,
) -> StepLimits:
    """The limits of a step; ``elsewhere`` wait besides, where the policy does not see them."""
    live = Batch(requests(running), requests(waiting).first)
    held = state(len(running), len(waiting) + elsewhere, kv)
    return step_half.limits(held, lambda: live, limits())


def nobody_asks() -> Batch:
    raise AssertionError("the requests themselves were asked for")


def test_where_no_request_waits_the_engine_runs_as_it_was_started() -> None:
    step = half(b_max=200).limits(state(running=10), nobody_asks, limits())
    assert step == StepLimits(200, 2048, reason="load")
    assert half().limits(state(running=0), nobody_asks, limits()).max_running == 256


def test_all_start_that_there_is_room_for() -> None:
    step = ask(half(), decoding(3), prompts(*[100] * 5))
    assert (step.max_running, step.token_budget, step.reason) == (8, 2048, "load")
    assert step.may_pause_prefill
    assert step.longest_chunk_tokens == 2045


def test_only_those_start_whose_prompt_begins_within_the_step() -> None:
    # 0, 600, 1200 and 1800 prompt tokens are before them; 2,045 are left.
    step = ask(half(), decoding(3), prompts(*[600] * 30))
    assert (step.max_running, step.reason) == (7, "bound")
    # 511 + 511 + 511 + 512 are all of it: the fifth begins after the step.
    step = ask(half(), decoding(3), prompts(511, 511, 511, 512, 1))
    assert step.max_running == 7
    step = ask(half(), decoding(3), prompts(511, 511, 511, 511, 1))
    assert step.max_running == 8


def test_a_prompt_that_runs_takes_its_rest_first() -> None:
    # 1,500 of 2,500 are computed: 1,000 of the 2,045 are left for prompts that wait.
    running = decoding(3) + prompts(2500, computed=1500)
    step = ask(half(), running, prompts(*[600] * 30))
    assert step.max_running == 4 + 2
    step = ask(half(), decoding(3) + prompts(9000), prompts(10))
    assert (step.max_running, step.reason) == (4, "bound")


@pytest.mark.parametrize("waiting", [64, 65, 200, 256])
def test_as_many_start_at_once_as_wait(waiting: int) -> None:
    step = ask(half(), [], prompts(*[1] * waiting))
    assert (step.max_running, step.reason) == (waiting, "load")
    assert not step.may_pause_prefill


def test_no_more_start_at_once_than_begin_in_the_step_or_than_the_engine_takes() -> None:
    assert ask(half(), decoding(3), prompts(*[20] * 250)).max_running == 3 + 103  # 2,045 tokens
    assert ask(half(), [], prompts(*[1] * 500)).max_running == 256
    assert ask(half(b_max=100), [], prompts(*[1] * 500)).max_running == 100


@pytest.mark.parametrize(("running", "cap"), [(9, 10), (10, 10), (12, 12)])
def test_b_max_is_kept(running: int, cap: int) -> None:
    step = ask(half(b_max=10), decoding(running), prompts(5, 5))
    assert (step.max_running, step.reason) == (cap, "bound")


def test_who_waits_elsewhere_does_not_hold_back_the_others() -> None:
    step = ask(half(), decoding(3), [], elsewhere=5)
    assert (step.max_running, step.reason) == (3 + 64, "load")


def test_alone_it_always_starts() -> None:
    step = ask(half(kv_tokens=200), [], prompts(190, 190))
    assert step.max_running == 1


def test_memory_keeps_the_next_one_waiting() -> None:
    step = ask(half(kv_tokens=2000), decoding(10), prompts(*[100] * 20), kv=1000)
    assert 10 <= step.max_running < 30
    assert step.reason == "memory"


def test_where_memory_and_sla_hold_all_nothing_binds() -> None:
    # All that they may generate does not fit, so the batch is looked ahead.
    step = ask(half(50, kv_tokens=20_000), decoding(3), prompts(50, 50), kv=300)
    assert (step.max_running, step.reason) == (5, "load")


def test_speculating_decodes_take_their_drafts_of_the_budget() -> None:
    s = half(tokens_per_decode=4)
    # Up to four tokens that are not computed are drafts, five a prompt.
    running = [*decoding(10), (96, 90, 10), (95, 90, 10)]
    step = ask(s, running, prompts(2000, 50))
    assert step.token_budget == 2048
    # 2,048 less 11 decodes of 4, less 5 tokens of a prompt: 1,999.
    assert step.max_running == 12 + 1
    step = ask(half(tokens_per_decode=4), running, prompts(1998, 50))
    assert step.max_running == 12 + 2


def test_who_has_as_many_tokens_to_compute_as_a_decode_takes_decodes() -> None:
    assert ask(half(tokens_per_decode=4), [(96, 90, 10)], prompts(10)).may_pause_prefill
    assert not ask(half(tokens_per_decode=4), [(95, 90, 10)], prompts(10)).may_pause_prefill


def sized(use: Callable[[ChunkSizer], int], itl_s: float = 0.05) -> int:
    sizer = ChunkSizer(itl_s, 99)
    sizer.receive(MODEL)
    return use(sizer)


def test_the_chunk_is_what_the_sla_leaves_beside_the_decodes() -> None:
    expected = sized(lambda s: s.chunk(20, 6000, 0, least=16, most=2028))
    assert 0 < expected < 300
    step = ask(half(50), decoding(20, tokens=300), prompts(*[1000] * 5))
    assert (step.token_budget, step.longest_chunk_tokens) == (20 + expected, expected)
    assert (step.max_running, step.reason) == (21, "sla")


def test_tokens_before_a_chunk_cost_attention() -> None:
    expected = sized(lambda s: s.chunk(20, 6000, 5000, least=16, most=2028))
    assert expected < sized(lambda s: s.chunk(20, 6000, 0, least=16, most=2028))
    running = decoding(20, tokens=300) + prompts(9000, computed=5000)
    step = ask(half(50), running, prompts(9000))
    assert step.token_budget == 20 + expected
    assert (step.max_running, step.reason) == (21, "sla")
    # Those that get a part of it are read, four at most: 2,000 on average, never less than first.
    some = [(5000, 9000, 0), (1000, 9000, 0), (1000, 9000, 0), (1000, 9000, 0), (9000, 19000, 0)]
    others = decoding(20, tokens=300)
    at = [sized(lambda s, k=k: s.chunk(20, 6000, k, least=16, most=2028)) for k in (5000, 2000)]
    waiting = prompts(9000)
    assert ask(half(50), others + some, waiting).token_budget == 20 + at[0]
    deep = [*some[1:4], some[0], some[4]]
    assert ask(half(50), others + deep, waiting).token_budget == 20 + at[1]


def test_without_decodes_there_is_no_time_between_tokens() -> None:
    step = ask(half(50), prompts(9000, computed=5000), prompts(50))
    assert (step.token_budget, step.may_pause_prefill) == (2048, False)


def test_under_paced_delivery_who_would_make_a_later_step_too_long_does_not_start() -> None:
    paced = PacedChunks(0.05, 99)
    paced.receive(MODEL)
    most = sum(paced.in_time(n, 100 * n) for n in range(1, 300))
    assert most in (142, 143)  # of 0.21 ms beside 20
    step = ask(half(50, delivery="paced"), decoding(most - 2), prompts(*[1] * 30))
    assert step.max_running <= most
    assert step.reason == "sla"


def test_a_running_prompt_is_sized_after_the_queue_is_empty() -> None:
    s = half(50)
    running = decoding(20, tokens=300) + prompts(9000, computed=5000)
    first = ask(s, running, prompts(50))
    assert ask(s, running, []).token_budget == first.token_budget
    assert ask(s, decoding(21, tokens=300), []).token_budget < 2048  # it says so once more
    assert s.limits(state(running=21), nobody_asks, limits()).token_budget == 2048


def test_without_an_sla_a_running_prompt_needs_nobody() -> None:
    s = half()
    ask(s, decoding(20) + prompts(9000, computed=5000), prompts(50))
    assert s.limits(state(running=21), nobody_asks, limits()).token_budget == 2048


def test_an_engine_that_went_idle_begins_anew() -> None:
    s = half(50)
    ask(s, decoding(20) + prompts(9000, computed=5000), [], elsewhere=1)
    s.limits(state(running=0), nobody_asks, limits())
    assert s.limits(state(running=3), nobody_asks, limits()).token_budget == 2048


def test_its_model_is_known_after_50_steps() -> None:
    s = half(50)
    for n in range(50):
        assert s.model is None, n
        s.observe(sample(duration_s=0.022))
    assert s.model is not None
    assert half().model is None


@pytest.mark.parametrize(
    ("running", "waiting", "fits"),
    [
        ([], prompts(9000), False),  # a block of 528 is more than the SLA leaves
        ([], prompts(150), True),  # the whole prompt
        (prompts(9000, computed=5000), prompts(50), False),  # 280 to the next boundary
        (prompts(9000, computed=5180), prompts(9000), True),  # 100
        (prompts(9000, computed=5280), prompts(50), False),  # it stands on one
        (prompts(5380, computed=5280), [], True),  # its last 100
    ],
)
def test_where_prompts_are_computed_in_whole_blocks_less_is_nothing(
    running: list[tuple[int, int, int]], waiting: list[tuple[int, int, int]], fits: bool
) -> None:
    first = running[0][0] if running else 0
    chunk = sized(lambda z: z.chunk(20, 2000, first, least=16, most=2028))
    assert 100 < chunk < 280
    step = ask(half(50, whole_chunk_tokens=528), decoding(20) + running, waiting, elsewhere=1)
    assert step.token_budget == 20 + (chunk if fits else 0)


@pytest.mark.parametrize(
    ("whole", "decodes", "itl_ms"),
    [
        (528, 20, 50),
        (528, 100, 50),  # a block of 528 is more than D leaves
        (0, 20, 15),  # D is infeasible
        (528, 20, 15),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_prompt_that_waits_gets_on_whatever_d_leaves(
    whole: int, decodes: int, itl_ms: float, noise: float
) -> None:
    s, last = half(itl_ms, whole_chunk_tokens=whole), 0
    for number in range(1500):
        step = ask(s, decoding(decodes), prompts(9000))
        prefill = step.token_budget - decodes if step.max_running > decodes else 0
        features = decodes, 100 * decodes, prefill, prefill * prefill // 2
        duration_s = MODEL.predict_s(*features) * (1 + noise * (number % 7) / 7)
        s.observe(StepSample(*features, duration_s))
        last = number if prefill else last
        assert number - last < 500


def test_where_decodes_alone_fill_d_nobody_starts() -> None:
    s = half(50)
    for _ in range(1500):
        step = ask(s, decoding(140), prompts(9000))
        assert (step.max_running, step.reason) == (140, "sla")
        s.observe(StepSample(140, 14_000, 0, 0, MODEL.predict_s(140, 14_000, 0, 0)))
    assert ask(s, decoding(100), prompts(9000)).max_running == 101


def test_a_prompt_that_has_just_started_is_sized_though_nobody_waits_any_more() -> None:
    s = half(50)
    first = ask(s, decoding(20, tokens=300), prompts(9000))
    begun = prompts(9000, computed=first.token_budget - 20)
    assert 20 < ask(s, decoding(20, tokens=300) + begun, []).token_budget <= first.token_budget


@pytest.mark.parametrize(("tokens", "starts"), [(100_000, True), (300_000, False)])
def test_under_paced_delivery_a_prompt_that_takes_each_step_too_long_to_read_does_not_start(
    tokens: int, starts: bool
) -> None:
    # 24 ms for 20 decodes, and 0.1 us for each token of its KV.
    step = ask(half(50, delivery="paced", kv_tokens=10**8), decoding(20), prompts(tokens))
    assert (step.max_running, step.reason) == ((21, "load") if starts else (20, "sla"))


@pytest.mark.parametrize("delivery", ["gaps", "paced"])
def test_what_the_engine_says_of_reading_kv_is_gone_by(delivery: str) -> None:
    def starts(kv_read_frac: float) -> bool:
        config = batching(policy="adaptive", sla={"itl_ms": 50, "delivery": delivery})
        half = AdaptiveStep(config, engine(kv_tokens=ROOMY, kv_read_frac=kv_read_frac))
        for _ in range(60):
            half.observe(StepSample(10, 3000, 0, 0, 0.02))
        assert half._chunks is not None
        return half._chunks.in_time(10, 200_000)

    assert starts(0.0) and not starts(1e-5)
