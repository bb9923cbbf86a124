"""``adaptive`` in the engine: who starts and how many tokens a step gets, number by number."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.models.pace import DeadlineSlack
from controller.models.requests import Requests, requests_of
from controller.models.step_time import StepModel
from controller.policies.adaptive import AdaptiveStep
from controller.policies.base import Batch
from controller.policies.chunk import GapChunks, StepHistory
from controller.policies.paced import PacedChunks
from controller.records import StepLimits, StepSample
from tests.builders import batching, engine, limits, linear_steps, sample, state

# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0)
Rows = list[tuple[int, int, int]]  # computed, prompt, outputs
ROOMY = 10**7  # tokens of KV memory: all that any request may generate


def half(itl_ms: float | None = None, **of_engine: Any) -> AdaptiveStep:
    bounds = {"min": of_engine.pop("b_min", 1), "max": of_engine.pop("b_max", None)}
    sla = {"itl_ms": itl_ms, "delivery": of_engine.pop("delivery", "gaps")}
    config = batching(policy="adaptive", sla=sla, max_running=bounds)
    step_half = AdaptiveStep(config, engine(**{"kv_tokens": ROOMY, **of_engine}))
    if itl_ms is not None:
        step_half.receive(limits(model=MODEL))
    return step_half


def decoding(n: int, tokens: int = 100) -> Rows:
    return [(tokens, tokens - 10, 10)] * n


def prompts(*tokens: int, computed: int = 0) -> Rows:
    return [(computed, length, 0) for length in tokens]


def requests(rows: Rows) -> Requests:
    computed, prompt, outputs = zip(*rows, strict=True) if rows else ((), (), ())
    return requests_of(computed, prompt, outputs, [4000] * len(rows))


def ask(
    step_half: AdaptiveStep, running: Rows, waiting: Rows, *, elsewhere: int = 0, kv: int = 0
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


DRAFTING = {"tokens_per_decode": 4}
# Up to four tokens that are not computed are drafts, five a prompt.
DRAFTED = [*decoding(10), (96, 90, 10), (95, 90, 10)]


@pytest.mark.parametrize(
    ("made", "running", "waiting", "more", "cap", "reason"),
    [
        ({}, decoding(3), prompts(*[100] * 5), {}, 8, "load"),
        # Only those start whose prompt begins within the step: 0, 600, 1200 and 1800 prompt tokens
        # are before them; 2,045 are left.
        ({}, decoding(3), prompts(*[600] * 30), {}, 7, "bound"),
        # 511 + 511 + 511 + 512 are all of it: the fifth begins after the step.
        ({}, decoding(3), prompts(511, 511, 511, 512, 1), {}, 7, "bound"),
        ({}, decoding(3), prompts(511, 511, 511, 511, 1), {}, 8, "load"),
        # A prompt that runs takes its rest first: 1,000 of the 2,045.
        ({}, decoding(3) + prompts(2500, computed=1500), prompts(*[600] * 30), {}, 6, "bound"),
        ({}, decoding(3) + prompts(9000), prompts(10), {}, 4, "bound"),
        # As many start at once as wait, begin in the step, and the engine takes.
        *(({}, [], prompts(*[1] * n), {}, n, "load") for n in (64, 65, 200, 256)),
        ({}, decoding(3), prompts(*[20] * 250), {}, 3 + 103, "bound"),  # 2,045 tokens
        ({}, [], prompts(*[1] * 500), {}, 256, "bound"),
        ({"b_max": 100}, [], prompts(*[1] * 500), {}, 100, "bound"),
        *(
            ({"b_max": 10}, decoding(n), prompts(5, 5), {}, max(n, 10), "bound")
            for n in (9, 10, 12)
        ),
        # Who waits elsewhere does not hold back the others.
        ({}, decoding(3), [], {"elsewhere": 5}, 3 + 64, "load"),
        # All that they may generate does not fit, so the batch is looked ahead, and nothing binds.
        ({"itl_ms": 50, "kv_tokens": 20_000}, decoding(3), prompts(50, 50), {"kv": 300}, 5, "load"),
        # 2,048 less 11 decodes of 4, less 5 tokens of a prompt: 1,999.
        (DRAFTING, DRAFTED, prompts(2000, 50), {}, 12 + 1, "bound"),
        (DRAFTING, DRAFTED, prompts(1998, 50), {}, 12 + 2, "load"),
        # B_min is kept to where memory or the SLA hold fewer, and else changes nothing.
        (
            {"b_min": 32, "kv_tokens": 1000},
            decoding(8),
            prompts(*[100] * 40),
            {"kv": 864},
            32,
            "bound",
        ),
        ({"itl_ms": 50, "b_min": 32}, decoding(8), prompts(*[1000] * 40), {}, 32, "bound"),
        ({"itl_ms": 50}, decoding(8), prompts(*[1000] * 40), {}, 9, "sla"),
        ({"b_min": 32}, decoding(8), prompts(*[10] * 40), {}, 48, "load"),
        ({"b_min": 32}, decoding(8), prompts(10, 10), {}, 10, "load"),
        # 512 of a long one that runs and of each that waits: three more begin in 2,047 tokens.
        (
            {"long_prompt_tokens": 512},
            [*decoding(1), *prompts(9000)],
            prompts(*[9000] * 9),
            {},
            2 + 3,
            "bound",
        ),
    ],
)
def test_as_many_start_as_there_is_room_for(made, running, waiting, more, cap, reason):
    step = ask(half(**made), running, waiting, **more)
    assert (step.max_running, step.reason) == (cap, reason)
    if "itl_ms" not in made:
        assert step.token_budget == 2048


def test_who_has_as_many_tokens_to_compute_as_a_decode_takes_decodes() -> None:
    assert ask(half(tokens_per_decode=4), [(96, 90, 10)], prompts(10)).may_pause_prefill
    assert not ask(half(tokens_per_decode=4), [(95, 90, 10)], prompts(10)).may_pause_prefill


def sized(use: Callable[[GapChunks], int], itl_s: float = 0.05) -> int:
    sizer = GapChunks(itl_s, 99, StepHistory(itl_s))
    sizer.history.receive(MODEL)
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
    paced = PacedChunks(0.05, 99, 0.0, StepHistory(0.05), tiles=True)
    paced.history.receive(MODEL)
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
def test_where_prompts_are_computed_in_whole_blocks_less_is_nothing(running, waiting, fits):
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
def test_a_prompt_that_waits_gets_on_whatever_d_leaves(whole, decodes, itl_ms, noise):
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


def test_below_b_min_a_prompt_gets_on_in_every_step() -> None:
    # 145 decodes leave nothing of 50 ms: without B_min a prompt is computed once in 100 steps.
    assert ask(half(50), decoding(145), prompts(100)).token_budget < 145 + 16
    for b_min, tokens in ((145, 0), (146, 16), (200, 16)):
        s = half(50, b_min=b_min)
        budgets = [ask(s, decoding(145), prompts(100)).token_budget - 145 for _ in range(9)]
        assert budgets == [tokens] * 9, b_min
    # ... one that has begun, too, while those in prefill make up the rest of B_min.
    s = half(50, b_min=150)
    step = ask(s, decoding(145) + prompts(*[100] * 5), prompts(100))
    assert (step.max_running, step.token_budget, step.longest_chunk_tokens) == (150, 161, 16)


def test_without_an_sla_the_model_is_learned_from_steps() -> None:
    s = half()
    for step in linear_steps(200):
        s.observe(step)
    assert s._history.model.c0 == pytest.approx(0.02, rel=0.02)
    assert s._history.model.c1 == pytest.approx(2e-4, rel=0.02)
    assert s.model is None  # without an SLA it is not published


def test_the_groups_model_counts_once_until_it_is_another_one() -> None:
    s, pushed = half(), limits(model=StepModel(0.03, 2e-4, 1e-7, 1e-4, 0.0, 0.0))
    s.receive(pushed)
    for step in linear_steps(200):
        s.observe(step)
    learned = s._history.model
    s.receive(pushed)
    s.receive(limits())
    assert s._history.model is learned


def test_a_gap_while_control_is_off_teaches_nothing() -> None:
    def late(*, enforce: bool) -> float:
        step = half(50)
        step.observe(sample(decodes=112, kv_tokens=0, duration_s=MODEL.predict_s(112, 0, 0, 0)))
        step.receive(limits(model=MODEL, enforce=enforce))
        step.resumed(3.0)
        return step._chunks.target.late_anyway

    assert late(enforce=True) == pytest.approx(1 / 113, rel=1e-3)
    assert late(enforce=False) == 0


LONGEST, BLOCK = 500, 16
HERE = 40  # of which some run and some wait
ENOUGH = HERE * (LONGEST + BLOCK)  # tokens of KV memory


def roomy(itl_ms: float | None = None, b_max: int | None = None, **of_engine: Any) -> AdaptiveStep:
    config = batching(policy="adaptive", sla={"itl_ms": itl_ms}, max_running={"max": b_max})
    known = {"max_model_len": LONGEST, "kv_tokens": ENOUGH, "max_num_seqs": 100, **of_engine}
    return AdaptiveStep(config, engine(block_tokens=BLOCK, **known))


def test_where_memory_holds_all_at_their_longest_the_engine_runs_as_it_was_started() -> None:
    asked = roomy().limits(state(30, 10, 0), nobody_asks, limits())
    assert asked == StepLimits(100, 2048, reason="load")
    many = roomy(kv_tokens=10 * ENOUGH).limits(state(0, 100, 0), nobody_asks, limits())
    assert many == asked


@pytest.mark.parametrize(
    ("given", "running", "waiting", "used"),
    [
        ({"kv_tokens": ENOUGH - 1}, 30, 10, 0),
        ({}, 30, 11, 0),
        ({}, 30, 10, 1),  # which a session may hold that neither runs nor waits
        ({"max_model_len": LONGEST + 1}, 30, 10, 0),
        ({"max_model_len": None}, 30, 10, 0),
        ({"b_max": 39}, 30, 10, 0),
        ({"long_prompt_tokens": 64}, 30, 10, 0),
        ({"itl_ms": 50}, 30, 10, 0),
    ],
)
def test_where_something_may_bind_they_are_looked_at(given, running, waiting, used):
    with pytest.raises(AssertionError, match="the requests themselves were asked for"):
        roomy(**given).limits(state(running, waiting, used), nobody_asks, limits())


def test_no_more_of_the_queue_are_looked_at_than_may_begin() -> None:
    asked: list[int] = []
    queue = requests_of([0] * 500, [20] * 500, [0] * 500, [400] * 500)

    def waiting(n: int) -> Requests:
        asked.append(n)
        return queue.first(n)

    one = roomy(kv_tokens=10**7, max_num_seqs=256, max_model_len=None)
    one.limits(state(0, 500, 0), lambda: Batch(queue.first(0), waiting), limits())
    assert asked == [64, 128]  # 103 prompts of 20 tokens begin in 2,048


def beside(
    elsewhere: int, step_half: AdaptiveStep, running: Rows, waiting: Rows, used: int
) -> StepLimits:
    """The limits of a step; of the tokens in use so many are held by requests that do not run."""
    live = Batch(requests(running), requests(waiting).first, not_running_tokens=elsewhere)
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
    live = Batch(
        running, requests(prompts(20, 20, 20)).first, before_prefix_wait=lambda n: min(n, 2)
    )
    step = half(50).limits(state(21, 3), lambda: live, limits())
    assert (step.max_running, step.reason) == (21 + 2, "sla")
    none = replace(live, before_prefix_wait=lambda n: 0)
    step = half(50).limits(state(21, 3), lambda: none, limits())
    assert (step.max_running, step.longest_always) == (21, False)


@pytest.mark.parametrize("sla", [{"delivery": "paced", "ttft_ms": 2000}, {}])
def test_under_paced_delivery_nobody_shares_a_step(sla: dict[str, Any]) -> None:
    config = batching(policy="adaptive", sla={"itl_ms": 50, **sla})
    s = AdaptiveStep(config, engine(kv_tokens=ROOMY))
    s.receive(limits(model=MODEL))
    live = Batch(requests([*decoding(20), *prompts(9000)]), requests(prompts(60)).first)
    live = replace(live, slack=DeadlineSlack(np.full(20, 0.01), np.full(20, 10)))
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


@pytest.mark.parametrize("sla", [{"itl_ms": 50}, {}])
def test_decodes_go_before_prompts_where_an_sla_holds_and_else_as_vllm_has_them(sla):
    config = batching(policy="adaptive", sla=sla)
    s = AdaptiveStep(config, engine(kv_tokens=ROOMY))
    assert ask(s, [*decoding(20), *prompts(9000)], prompts(60)).decodes_first == bool(sla)
