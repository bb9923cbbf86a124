"""The online step-time model, the prefill chunk."""

import numpy as np
import pytest

from controller.models.online import OnlineStepModel, guess, prefill_room
from controller.models.step_time import StepModel
from controller.policies.chunk import ChunkSizer
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


def sample(decodes: int, prefill: int, duration_s: float) -> StepSample:
    return StepSample(decodes, decodes * 300, prefill, prefill * 100, duration_s)


def test_chunks_shrink_as_the_batch_grows_and_grow_with_the_sla() -> None:
    def chunk(decodes: int, limit_s: float) -> int:
        sizer = ChunkSizer(limit_s, 99)
        sizer.receive(TRUE)
        return sizer.chunk(decodes, decodes * 300, 0, least=16, most=2048)

    assert chunk(10, 0.05) > chunk(60, 0.05) > chunk(100, 0.05)
    assert chunk(60, 0.08) > chunk(60, 0.05)


def filled(sizer: ChunkSizer, decodes: int, model: StepModel, factor: float = 1.0) -> float:
    """A step with the chunk that the sizer gives; seconds it took by ``model``."""
    prefill = sizer.chunk(decodes, 300 * decodes, 0, least=16, most=2048)
    features = decodes, 300 * decodes, prefill, prefill * prefill // 2
    took_s = model.predict_s(*features) * factor
    sizer.observe(StepSample(*features, took_s))
    return took_s


@pytest.mark.parametrize("noise", [0.03, 0.05])
def test_where_the_percentile_is_in_reach_it_is_kept(noise: float) -> None:
    sizer, rng, late = ChunkSizer(0.1, 99), np.random.default_rng(7), 0
    sizer.receive(TRUE)
    for number in range(12_000):
        took_s = filled(sizer, 10, TRUE, float(rng.lognormal(-noise * noise / 2, noise)))
        late += number >= 2000 and took_s > 0.1
    assert 0.006 <= late / 10_000 <= 0.0105


def test_pauses_that_no_chunk_causes_make_no_chunk_much_smaller() -> None:
    sizer, rng = ChunkSizer(0.05, 99), np.random.default_rng(8)
    sizer.receive(TRUE)
    for number in range(4000):  # 2% of steps pause, which is more than the percentile allows
        pause = number % 50 == 0
        filled(sizer, 60, TRUE, 20.0 if pause else float(rng.normal(1, 0.02)))
    assert sizer.until_s > 0.05 * 0.9


def test_a_wrong_model_is_put_right_by_the_steps() -> None:
    sizer = ChunkSizer(0.05, 99)
    sizer.receive(StepModel(0.014, 1.4e-4, 0.7e-7, 0.7e-4, 0.0, 0.0))
    rng = np.random.default_rng(5)
    late = []
    for _ in range(600):
        decodes = int(rng.integers(40, 80))
        prefill = sizer.chunk(decodes, decodes * 300, 0, least=16, most=2048)
        took_s = TRUE.predict_s(decodes, decodes * 300, prefill, prefill * prefill / 2)
        sizer.observe(StepSample(decodes, decodes * 300, prefill, prefill**2 // 2, took_s))
        late.append(took_s > 0.05)
    assert sum(late[40:]) <= 0.02 * len(late[40:])
