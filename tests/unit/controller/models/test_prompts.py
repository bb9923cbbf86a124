"""Prompts in chunks: their wait, the tokens they hold up, and CUDA graphs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.arrays import Floats
from controller.models.chunked_prefill import Prompts
from controller.models.demand import Demand
from controller.models.prompt_work import LEAST_LEFT, WHOLE_ROOM, PromptWork
from controller.models.step_time import StepModel
from replicas.engine.limiter import prompt_room
from tests.property.strategies import examples

S = 0.05  # a step with prompts
DECODES_S, MIXED_S, TOKEN_S = 0.024, 0.002, 1e-4


def prompts(per_s: float, *tokens: float) -> Prompts:
    return Prompts(
        np.array(tokens), np.full(len(tokens), 1 / len(tokens)), per_s, TOKEN_S, MIXED_S, DECODES_S
    )


def wait_s(these: Prompts, step_s: float = S, horizon_s: float = 60.0) -> float:
    return float(these.steps(np.array([step_s])).wait_s(horizon_s)[0])


def load(these: Prompts, step_s: float = S) -> float:
    room = (step_s - DECODES_S - MIXED_S) / TOKEN_S
    return these.per_s * float(these.tokens.mean()) / room * step_s


def test_a_prompt_that_is_alone_takes_its_own_time_and_half_a_step_to_begin_with() -> None:
    # 600 tokens: two steps of 240, and one of 120.
    alone = 2 * S + DECODES_S + MIXED_S + 120 * TOKEN_S
    assert wait_s(prompts(1e-9, 600.0)) == pytest.approx(DECODES_S / 2 + alone)
    assert wait_s(prompts(1e-9, 600.0, 60.0)) == pytest.approx(
        DECODES_S / 2 + (alone + DECODES_S + MIXED_S + 60 * TOKEN_S) / 2
    )


def test_the_wait_is_pollaczek_and_khinchines_for_ever() -> None:
    these = prompts(0.5 / load(prompts(1.0, 239.0, 717.0)), 239.0, 717.0)
    spread, steps_s = 1 + 0.25, 478 / 240 * S  # 1 + CV^2, time of a prompt with others
    queue_s = spread * 0.5 * steps_s / (2 * (1 - 0.5))
    begin_s = (S + DECODES_S) / 4
    own_s = 478 * TOKEN_S + 2 * (DECODES_S + MIXED_S)
    assert wait_s(these, horizon_s=1e9) == pytest.approx(begin_s + own_s + queue_s, rel=1e-6)


lengths = st.lists(st.floats(1, 5000), min_size=1, max_size=8)
rates = st.floats(1e-3, 100)
steps_s = st.floats(DECODES_S + MIXED_S + 1e-3, 1.0)


@examples(0.5)
@given(lengths, rates, st.floats(1, 2), steps_s)
def test_more_prompts_or_a_longer_time_to_look_at_make_no_wait_shorter(tokens, per_s, more, step_s):
    here = wait_s(prompts(per_s, *tokens), step_s)
    assert wait_s(prompts(per_s * more, *tokens), step_s) >= here * (1 - 1e-9)
    assert wait_s(prompts(per_s, *tokens), step_s, 60 * more) >= here * (1 - 1e-9)
    longer = [more * one for one in tokens]
    assert wait_s(prompts(per_s, *longer), step_s) >= here * (1 - 1e-9)


def late_share(these: Prompts, step_s: float, late: float, per_s: float) -> float:
    def all_alike(predicted_s: Floats) -> Floats:
        return np.full_like(predicted_s, late)

    return float(these.steps(np.array([step_s])).late_share(per_s, all_alike)[0])


@examples(0.5)
@given(lengths, rates, rates, steps_s, st.floats(0, 1))
def test_the_share_of_late_tokens_is_as_large_as_what_is_late_of_each_step(
    tokens: list[float], per_s: float, come: float, step_s: float, late: float
) -> None:
    these = prompts(per_s, *tokens)
    in_steps = late_share(these, step_s, 1.0, come)  # with prompts
    assert 0 < in_steps <= 1 + 1e-9
    assert late_share(these, step_s, late, come) == pytest.approx(late * in_steps)
    assert late_share(these, step_s, 0.0, come) == 0
    assert in_steps <= late_share(these, step_s, 1.0, 2 * come) + 1e-9


def test_the_last_step_of_a_prompt_is_late_only_if_it_is_as_long_itself() -> None:
    def late(predicted_s: Floats) -> Floats:
        return (predicted_s > 0.9 * S).astype(float)

    shares = [
        float(prompts(1.0, tokens).steps(np.array([S])).late_share(1e-6, late)[0])
        / late_share(prompts(1.0, tokens), S, 1.0, 1e-6)
        for tokens in (60.0, 600.0, 700.0)
    ]
    assert shares == pytest.approx([0, 2 / 3, 1], abs=1e-4)


KV = 500.0
PER_PREFILL = 0.25  # tokens generated for each prompt token
MODEL = StepModel(c0=0.01, c1=1e-4, c2=1e-7, c3=2e-5, c4=1e-8, sigma_s=0.0, mixed_s=0.004)
GRAPHS = StepModel(
    c0=0.01, c1=1e-4, c2=1e-7, c3=2e-5, c4=1e-8, sigma_s=0.0, graph_tokens=128, eager_s=0.05
)
DECODE_S = MODEL.c1 + MODEL.c2 * KV
lengths_of = st.lists(st.integers(1, 20_000), min_size=1, max_size=256)


def work(lengths: list[int], model: StepModel = MODEL) -> PromptWork:
    return PromptWork(model, Demand(np.array(lengths, dtype=float), 5000.0, PER_PREFILL), KV)


def token_s(lengths: list[int]) -> float:
    """Seconds of a prompt token, which attends to half of its prompt."""
    return MODEL.c3 + MODEL.c4 * float(np.mean(lengths)) / 2


@given(lengths_of)
def test_every_prompt_counts_once_and_as_long_as_it_is(lengths: list[int]) -> None:
    made = work(lengths).prompts(100.0)
    assert made.shares.sum() == pytest.approx(1)
    assert made.shares @ made.tokens == pytest.approx(np.mean(lengths))
    for length in set(lengths):
        near = np.abs(np.log(made.tokens / length)) <= np.log(1.1)
        assert made.shares[near].sum() >= lengths.count(length) / len(lengths) - 1e-12


@given(lengths_of, st.floats(0.02, 0.5))
def test_at_the_rate_that_is_carried_steps_take_what_was_asked(lengths, step_s):
    tokens = step_s * work(lengths).carried_per_s(step_s)  # a step
    each = token_s(lengths) + DECODE_S * PER_PREFILL
    assert MODEL.c0 + MODEL.mixed_s + tokens * each == pytest.approx(step_s)


@given(lengths_of, st.floats(0.011, 0.5))
def test_a_step_below_the_least_of_an_eager_one_stays_in_the_graphs(lengths, step_s):
    made = work(lengths, GRAPHS)
    per_s = made.carried_per_s(step_s)
    each = token_s(lengths) + DECODE_S * PER_PREFILL
    tokens = per_s * GRAPHS.c0 / (1 - per_s * each)  # what a step of that rate holds
    if step_s < GRAPHS.eager_s:
        assert tokens * (1 + PER_PREFILL) <= GRAPHS.graph_tokens * (1 + 1e-6)
    else:
        assert GRAPHS.c0 + tokens * each == pytest.approx(step_s)


def test_the_mean_batch_is_by_littles_law_up_to_an_engine_that_is_full() -> None:
    made, each = work([1000]), token_s([1000]) + DECODE_S * PER_PREFILL
    for busy in (0.2, 0.7, 0.95):
        rate = busy / each  # of prompt tokens: this share of time goes to them and to decodes
        decodes = DECODE_S * PER_PREFILL * rate
        assert made.decodes_s(rate) == pytest.approx(MODEL.c0 * (1 + decodes / (1 - busy)))
    full = made.decodes_s(2 / each)
    assert full == pytest.approx(MODEL.c0 * (1 + DECODE_S * PER_PREFILL * 2 / each / LEAST_LEFT))


@given(lengths_of, st.floats(0, 20_000))
def test_a_step_with_a_whole_prompt_has_the_longest_one_beside_a_larger_batch(lengths, per_s):
    made = work(lengths)
    prompts = made.prompts(per_s)
    longest = made.whole_s(prompts)
    beside_s = MODEL.c0 + MODEL.mixed_s + 1.2 * (prompts.decodes_s - MODEL.c0)
    assert longest[-1] == pytest.approx(beside_s + token_s(lengths) * max(lengths))
    assert (np.diff(longest) >= 0).all()
    assert WHOLE_ROOM > 1


GRAPH, EAGER_S = 512, 0.030
TRUE = StepModel(0.006, 1e-5, 0.0, 2e-5, 0.0, 0.0, mixed_s=0.002)
BEYOND = replace(TRUE, graph_tokens=GRAPH, eager_s=EAGER_S)


def test_a_chunk_ends_with_the_graphs_until_a_step_may_be_as_long_as_a_launch() -> None:
    fixed_s = BEYOND.predict_s(32, 0, 0, 0) + BEYOND.mixed_s
    edge_s = fixed_s + 480 * BEYOND.c3

    def room(limit_s: float, decodes: int = 32) -> float:
        return prompt_room(BEYOND, decodes, 0, 0, limit_s)

    assert room(edge_s - 0.001) == pytest.approx(480 - 50)
    assert room(edge_s + 0.001) == room(EAGER_S - 0.001) == 480
    assert room(EAGER_S) == pytest.approx((EAGER_S - fixed_s) / BEYOND.c3)
    assert room(0.050) == pytest.approx((0.050 - fixed_s) / BEYOND.c3)
    # So many decodes are beyond the graphs themselves: no prompt with them is in time.
    assert room(EAGER_S - 0.001, 600) < 0


def test_prompts_wait_for_the_steps_as_they_are_planned() -> None:
    tokens = np.array([256.0])
    within = Prompts(tokens, np.ones(1), 20.0, 2e-5, 0.002, 0.007)
    prompts = replace(within, graph_s=480 * 2e-5, eager_s=EAGER_S)
    edge_s = 0.009 + 480 * 2e-5
    s = np.array([0.012, edge_s, edge_s + 0.010, EAGER_S, 0.050])
    planned_s = prompts.steps(s).step_s
    assert planned_s == pytest.approx([0.012, edge_s, edge_s, EAGER_S, 0.050])
    assert within.steps(s).step_s == pytest.approx(s)
    wait_s = prompts.steps(s).wait_s(60.0)
    assert wait_s[1] == wait_s[2]  # the same steps
    # One prompt is within the graphs in any case.
    assert wait_s == pytest.approx(within.steps(planned_s).wait_s(60.0))


def test_where_decodes_alone_fill_the_graphs_every_prompt_is_beyond_them() -> None:
    prompts = Prompts(np.array([256.0]), np.ones(1), 5.0, 2e-5, 0.002, 0.007, 0.0, EAGER_S)
    s = np.array([0.012, 0.05])
    with np.errstate(all="raise"):
        assert np.isfinite(prompts.steps(s).wait_s(60.0)).all()
        assert np.isfinite(prompts.steps(s).late_share(5.0, lambda t: np.zeros_like(t))).all()
