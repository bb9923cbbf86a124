"""What prompts cost: lengths and shares, the rate that steps carry, a step with all of one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.demand import Demand
from controller.models.prompt_work import LEAST_LEFT, WHOLE_ROOM, PromptWork
from controller.models.step_time import StepModel

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
