"""The online step-time model, the margin, the prefill chunk."""

import numpy as np
import pytest

from controller.models.chunk import PATIENCE_STEPS, ChunkSizer
from controller.models.margin import AIM, Margin
from controller.models.online import OnlineStepModel, guess, prefill_room
from controller.models.step_time import StepModel
from controller.records import StepSample

TRUE = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0)


def steps(n: int, seed: int = 0) -> list[tuple[int, int, int, int]]:
    """Varied features: decodes, KV tokens, prefill tokens, prefill x context."""
    rng = np.random.default_rng(seed)
    return [
        (b, b * int(rng.integers(100, 900)), p, p * int(rng.integers(1, 500)))
        for b, p in zip(
            rng.integers(1, 200, n).tolist(), rng.integers(0, 400, n).tolist(), strict=True
        )
    ]


def test_it_finds_the_line_that_the_steps_lie_on() -> None:
    online = OnlineStepModel(guess(0.05))
    for one in steps(300):
        online.learn(*one, TRUE.predict_s(*one))
    errors = [abs(online.model.predict_s(*s) / TRUE.predict_s(*s) - 1) for s in steps(50, seed=1)]
    assert max(errors) < 0.02


def test_after_a_shift_it_is_right_again_within_200_steps() -> None:
    online = OnlineStepModel(guess(0.05))
    for one in steps(300):
        online.learn(*one, TRUE.predict_s(*one))
    for one in steps(200, seed=2):
        online.learn(*one, 1.4 * TRUE.predict_s(*one))
    errors = [abs(online.model.predict_s(*s) / TRUE.predict_s(*s) / 1.4 - 1) for s in steps(50)]
    assert np.mean(errors) < 0.05


def test_what_the_steps_do_not_tell_stays_as_it_was_believed() -> None:
    online = OnlineStepModel(TRUE, weight_steps=5)
    for _ in range(500):  # always the same step, 20% slower than believed
        online.learn(100, 50_000, 0, 0, 1.2 * TRUE.predict_s(100, 50_000, 0, 0))
    assert online.model.predict_s(100, 50_000, 0, 0) == pytest.approx(
        1.2 * TRUE.predict_s(100, 50_000, 0, 0), rel=0.02
    )
    assert online.model.c3 == pytest.approx(TRUE.c3, rel=1e-3)


def test_no_coefficient_is_negative_whatever_comes() -> None:
    rng = np.random.default_rng(3)
    online = OnlineStepModel(guess(0.05))
    for one in steps(400):
        online.learn(*one, float(rng.exponential(0.05)))
        model = online.model
        assert min(model.c0, model.c1, model.c2, model.c3, model.c4) >= 0
        assert np.isfinite([model.c0, model.c1, model.c2, model.c3, model.c4]).all()


@pytest.mark.parametrize("context", [0, 5_000])
def test_the_room_for_prompts_is_what_the_model_says_it_takes(context: int) -> None:
    room = prefill_room(TRUE, 100, 50_000, context, 0.08)
    assert TRUE.predict_s(100, 50_000, room, room * (context + room / 2)) == pytest.approx(0.08)
    assert prefill_room(TRUE, 400, 50_000, context, 0.05) < 0


@pytest.mark.parametrize("c4", [0.0, 1e-30, 1e-24, 1e-22, 1e-20, 1e-16])
def test_attention_that_costs_next_to_nothing_leaves_the_room_as_it_is(c4: float) -> None:
    free = StepModel(0.02, 2e-4, 0.0, 1e-4, c4, 0.0)
    assert prefill_room(free, 50, 0, 1000, 0.05) == pytest.approx(200, rel=1e-6)


def test_where_prompts_cost_nothing_they_all_fit_or_none() -> None:
    free = StepModel(0.02, 2e-4, 0.0, 0.0, 0.0, 0.0)
    assert prefill_room(free, 50, 0, 0, 0.05) == float("inf")
    assert prefill_room(free, 200, 0, 0, 0.05) == -float("inf")


@pytest.mark.parametrize("percentile", [90.0, 95.0, 99.0])
def test_the_violation_rate_meets_the_percentile(percentile: float) -> None:
    rng, margin, violated = np.random.default_rng(4), Margin(0.05, percentile), 0
    n = 20_000
    for _ in range(n):
        planned_s = 0.05 - margin.seconds
        took_s = planned_s * float(np.exp(rng.normal(0, 0.04)))
        margin.observe(took_s, planned_s, 100, aimed=True)
        violated += took_s > 0.05
    allowed = 1 - percentile / 100
    assert violated / n == pytest.approx(AIM * allowed, rel=0.1)
    assert violated / n <= allowed


def test_steps_of_decodes_alone_that_are_easily_predicted_do_not_hide_how_prompts_err() -> None:
    rng, margin = np.random.default_rng(5), Margin(0.05, 99)
    aimed = violated = 0
    for k in range(40_000):
        margin.observe(0.02, 0.02, 10, aimed=False)
        margin.observe(0.02, 0.02, 10, aimed=False)
        predicted_s = 0.05 - margin.seconds
        duration_s = predicted_s * rng.lognormal(0.0, 0.05)
        margin.observe(duration_s, predicted_s, 10, aimed=True)
        if k > 5_000:
            aimed, violated = aimed + 1, violated + (duration_s > 0.05)
    assert violated / aimed == pytest.approx(0.01 * AIM, rel=0.1)


def test_a_step_that_was_not_sized_by_the_sla_and_kept_it_says_nothing() -> None:
    margin = Margin(0.05, 99)
    before = margin._level
    margin.observe(0.02, 0.02, 10, aimed=False)
    assert margin._level == before


def sample(decodes: int, prefill: int, duration_s: float) -> StepSample:
    return StepSample(decodes, decodes * 300, prefill, prefill * 100, duration_s)


def test_chunks_shrink_as_the_batch_grows_and_grow_with_the_sla() -> None:
    def chunk(decodes: int, limit_s: float) -> int:
        sizer = ChunkSizer(limit_s, 99)
        sizer.hear(TRUE)
        return sizer.chunk(decodes, decodes * 300, 0, least=16, most=2048)

    assert chunk(10, 0.05) > chunk(60, 0.05) > chunk(100, 0.05)
    assert chunk(60, 0.08) > chunk(60, 0.05)


def test_a_prompt_is_not_kept_waiting_for_ever() -> None:
    sizer = ChunkSizer(0.05, 99)
    sizer.hear(TRUE)
    chunks = [sizer.chunk(200, 60_000, 0, least=16, most=2048) for _ in range(2 * PATIENCE_STEPS)]
    assert 16 in chunks
    assert sum(chunks) <= 2 * 16


@pytest.mark.parametrize("limit_s", [0.01, 0.022])  # one decode takes 20.2 ms
def test_an_sla_out_of_reach_is_given_up_for_two_steps_of_one_decode(limit_s: float) -> None:
    sizer = ChunkSizer(limit_s, 99)
    sizer.hear(TRUE)
    assert sizer.until_s == pytest.approx(0.0404)
    chunk = sizer.chunk(3, 900, 0, least=16, most=2048)
    assert TRUE.predict_s(3, 900, chunk, chunk * chunk / 2) == pytest.approx(0.0404, rel=0.01)
    assert sizer.in_time(60, 6000)


def test_violations_while_the_sla_is_out_of_reach_leave_no_margin_behind() -> None:
    slowed, other = ChunkSizer(0.03, 99), ChunkSizer(0.03, 99)
    for sizer in slowed, other:
        sizer.hear(TRUE)
    slowed.hear(StepModel(0.04, 4e-4, 2e-7, 2e-4, 2e-8, 0.0))
    for _ in range(100):
        slowed.observe(StepSample(10, 3000, 40, 800, 0.055))
    slowed.hear(TRUE)
    for sizer in slowed, other:
        for _ in range(600):
            features = 10, 3000, 40, 800
            sizer.observe(StepSample(*features, TRUE.predict_s(*features)))
    assert slowed.until_s == pytest.approx(other.until_s, rel=0.02)


def test_margin_and_stair_leave_a_tenth_of_the_room_above_one_decode() -> None:
    sizer = ChunkSizer(0.024, 99)
    sizer.hear(TRUE)
    features = 10, 3000, 10, 100
    for step in range(1000):  # one step in ten is late, however small
        late = step % 10 == 0
        sizer.observe(StepSample(*features, 0.03 if late else TRUE.predict_s(*features)))
    alone_s = sizer.model.predict_s(1, 0, 0, 0)
    assert sizer.until_s == pytest.approx(0.9 * alone_s + 0.1 * 0.024)


def test_a_wrong_model_is_put_right_by_the_steps() -> None:
    sizer = ChunkSizer(0.05, 99)
    sizer.hear(StepModel(0.014, 1.4e-4, 0.7e-7, 0.7e-4, 0.0, 0.0))
    rng = np.random.default_rng(5)
    late = []
    for _ in range(600):
        decodes = int(rng.integers(40, 80))
        prefill = sizer.chunk(decodes, decodes * 300, 0, least=16, most=2048)
        took_s = TRUE.predict_s(decodes, decodes * 300, prefill, prefill * prefill / 2)
        sizer.observe(StepSample(decodes, decodes * 300, prefill, prefill**2 // 2, took_s))
        late.append(took_s > 0.05)
    assert sum(late[40:]) <= 0.02 * len(late[40:])
