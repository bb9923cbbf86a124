"""The online step-time model where few steps have prompts: it has to know them after one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.online import OnlineStepModel, guess
from controller.models.step_time import StepModel, fit
from controller.records import StepSample
from tests.builders import stats_of

# SmolLM2-135M on one core: a prompt of 300 tokens takes 7 steps of decodes.
TRUE = StepModel(0.025, 0.001, 0.0, 0.0012, 1e-7, 0.0, mixed_s=0.008)
D = 0.110


def warmed() -> OnlineStepModel:
    """It has seen eight short prompts among 64 steps of decodes."""
    online = OnlineStepModel(guess(D))
    for k in range(64):
        prompt = 20 * (k % 8 == 0)
        step(online, 1 + k // 8, prompt)
    return online


def step(
    online: OnlineStepModel, decodes: int, prompt: int, context: int = 0, s: float = 0
) -> bool:
    features = decodes, 200 * decodes, prompt, prompt * context + prompt * prompt // 2
    return online.learn(*features, TRUE.predict_s(*features) + s)


def off(online: OnlineStepModel, prompt: int, context: int) -> float:
    """The relative error of the predicted time of such a step."""
    features = 9, 1800, prompt, prompt * context + prompt * prompt // 2
    return online.model.predict_s(*features) / TRUE.predict_s(*features) - 1


def test_one_long_prompt_says_what_prompts_cost() -> None:
    online = warmed()
    assert not step(online, 9, 300)
    # What the next chunk takes is known at once, wherever its prompt stands.
    for context in (0, 100, 250):
        assert abs(off(online, 40, context)) < 0.1


def test_decodes_do_not_say_how_far_off_steps_with_prompts_may_be() -> None:
    online = warmed()
    step(online, 9, 300)
    for _ in range(400):
        step(online, 9, 0)
    slower = replace(TRUE, c3=2 * TRUE.c3)  # another tenant of the caches
    for _ in range(12):
        features = 9, 1800, 40, 4800
        online.learn(*features, slower.predict_s(*features))
    found = online.model.predict_s(9, 1800, 40, 4800) / slower.predict_s(9, 1800, 40, 4800)
    assert found == pytest.approx(1, abs=0.1)


@given(st.lists(st.tuples(st.integers(0, 64), st.integers(0, 400)), min_size=8, max_size=60))
def test_context_costs_a_thousandth_of_a_token_at_most(steps):
    # Their times are as if a prompt's context were all that counts.
    online, seen = OnlineStepModel(guess(D)), []
    for decodes, prompt in steps:
        sample = StepSample(decodes, 0, prompt, prompt * prompt // 2, 0.03 + 1e-5 * prompt**2)
        online.learn(*sample.features, sample.duration_s)
        seen.append(sample)
        assert 0 <= online.model.c4 <= online.model.c3 / 1000 * (1 + 1e-9)
    if (pooled := fit(stats_of(seen * 10))) is not None:
        assert 0 <= pooled.c4 <= pooled.c3 / 1000 * (1 + 1e-9)


def test_a_pause_on_a_rare_prompt_does_not_stop_prompts() -> None:
    online = OnlineStepModel(guess(D))
    for k in range(1200):
        step(online, 9, 40 * (k % 100 == 0), 100)
    before = online.model.predict_s(9, 1800, 40, 4800)
    step(online, 9, 40, 100, s=0.5)
    assert online.model.predict_s(9, 1800, 40, 4800) < 1.5 * before


def test_a_prediction_that_is_off_by_a_third_is_mended_with_the_next_step() -> None:
    for factor in (0.7, 1.3):
        online = OnlineStepModel(replace(TRUE, c0=factor * TRUE.c0, c3=factor * TRUE.c3))
        before = online.model
        step(online, 9, 40)
        assert online.model != before


def settled(chunk: int) -> OnlineStepModel:
    """It has seen this chunk again and again."""
    online = warmed()
    for k in range(400):
        step(online, 9, chunk * (k % 2))
    return online


@pytest.mark.parametrize(("times", "believed"), [(1.4, False), (1.6, True)])
def test_a_chunk_half_as_large_again_as_any_before_is_believed(times, *, believed):
    online = settled(100)
    prompt = round(100 * times)
    step(online, 9, prompt, s=1.0)
    assert (off(online, prompt, 0) > 0.05) == believed


def test_the_largest_chunk_is_forgotten_as_steps_are() -> None:
    online = settled(100)
    step(online, 9, 300)
    for _ in range(300):
        step(online, 9, 20)
    step(online, 9, 150, s=1.0)  # 300 by 0.995^300 is 67
    assert off(online, 150, 0) > 0.05


def test_a_step_faster_than_what_graphs_leave_out_counts_as_no_time() -> None:
    online = OnlineStepModel(replace(TRUE, mixed_s=0.0))
    online.captured(64)
    for k in range(200):
        step(online, 9, 100 * (k % 2), s=0.2)
    for _ in range(20):
        online.learn(9, 1800, 100, 5000, 1e-3)
    assert min(online.model.costs) >= 0
    assert online.model.eager_s >= 0
