"""The prefill chunk: what a step's target leaves beside its decodes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.models.lookahead import Forecast
from controller.models.step_time import StepModel
from controller.policies.chunk import STARVED_STEPS, GapChunks, StepHistory
from controller.records import StepSample

D = 0.05
MODEL = StepModel(c0=0.02, c1=2e-4, c2=1e-8, c3=1e-4, c4=1e-9, sigma_s=0.0)
MOST = 2048


def sample(decodes: int, prefill: int, took_s: float | None = None) -> StepSample:
    features = decodes, decodes * 300, prefill, prefill * 100
    took_s = MODEL.predict_s(*features) if took_s is None else took_s
    return StepSample(*features, took_s, started=(200, 300))


def settled(steps: int = 600, percentile: float = 99.0) -> GapChunks:
    chunks, rng = GapChunks(D, percentile, StepHistory(D)), np.random.default_rng(1)
    chunks.history.receive(MODEL)
    for _ in range(steps):
        decodes = int(rng.integers(10, 40))
        chunks.observe(
            sample(decodes, chunks.chunk(decodes, decodes * 300, 0, least=16, most=MOST))
        )
    return chunks


def test_a_step_ends_just_inside_the_itl_target() -> None:
    chunks = settled()
    for decodes in (5, 20, 60):
        chunk = chunks.chunk(decodes, decodes * 300, 0, least=16, most=MOST)
        assert 0.97 * D < chunks.history.model.predict_s(decodes, decodes * 300, chunk, 0) <= D


@pytest.mark.parametrize("most", [0, 7, 100])
def test_it_is_no_more_than_the_budget_leaves(most: int) -> None:
    assert settled().chunk(10, 3000, 0, least=16, most=most) == most


def test_held_to_a_share_of_the_itl_target_steps_end_so_much_earlier() -> None:
    chunks = settled()
    chunks.set_target_frac(0.9)
    for _ in range(64):
        chunks.observe(sample(20, chunks.chunk(20, 6000, 0, least=16, most=MOST)))
    chunk = chunks.chunk(20, 6000, 0, least=16, most=MOST)
    assert 0.87 * D < chunks.history.model.predict_s(20, 6000, chunk, 0) <= 0.9 * D


def test_capacity_is_published_by_the_target_of_the_mean_batch() -> None:
    chunks = settled()
    assert chunks.reported.tail_frac == pytest.approx(D / chunks.target.target_s - 1, abs=1e-12)
    assert chunks.reported.c0 == chunks.history.model.c0


def test_after_a_hundred_steps_without_room_one_has_the_least() -> None:
    chunks = settled()
    for most in (MOST, 5):
        for _ in range(STARVED_STEPS - 1):
            assert chunks.chunk(1000, 300_000, 0, least=16, most=most) == 0
        for _ in range(3):  # until a step with prompt tokens has run
            assert chunks.chunk(1000, 300_000, 0, least=16, most=most) == min(16, most)
        chunks.observe(sample(1000, 0))
        assert chunks.chunk(1000, 300_000, 0, least=16, most=most) == min(16, most)
        chunks.observe(sample(1000, min(16, most)))


def test_a_step_with_room_starts_the_count_anew() -> None:
    chunks = settled()
    for decodes in (*[1000] * 99, 20, *[1000] * 99):
        chunk = chunks.chunk(decodes, decodes * 300, 0, least=16, most=MOST)
        assert (chunk > 16) == (decodes == 20)


def test_a_resumed_request_counts_as_late_where_its_gap_is() -> None:
    chunks = settled()
    before = chunks.target.late_anyway
    chunks.resumed(D)
    assert chunks.target.late_anyway == before
    chunks.resumed(1.01 * D)
    assert chunks.target.late_anyway > before


class Known:
    """A step-time model that need not be learned."""

    model = MODEL

    def learn(self, *features: float) -> bool:
        return False


def test_where_d_has_become_infeasible_prompts_are_computed_within_seconds() -> None:
    time: Any = Known()
    chunks, found = GapChunks(D, 99.0, StepHistory(D)), []
    chunks.history.online = time
    for number in range(600):
        if number == 400:
            time.model = StepModel(0.05, 2e-4, 1e-8, 1e-4, 1e-9, 0.0)
        chunk = chunks.chunk(20, 6000, 0, least=16, most=MOST)
        features = 20, 6000, chunk, 0
        chunks.observe(StepSample(*features, time.model.predict_s(*features)))
        found.append(chunk)
    assert max(found[:400]) > 100
    assert found[400] == 0
    assert max(found[450:500]) > 100


def together(alive: list[list[float]], kv: list[list[float]], error: float = 0.0) -> Forecast:
    reads = np.array(kv)
    none = np.zeros_like(reads)
    return Forecast(np.array(alive), none, none, none + error, none, reads)


def test_as_many_start_as_keep_decodes_inside_the_target_at_every_horizon() -> None:
    chunks = settled()
    fits = (D - chunks.history.model.c0) / chunks.history.model.c1  # about 150 decodes without KV
    now, later = 0.5 * fits, 0.9 * fits
    assert chunks.fitting(together([[now, later], [now, 1.1 * fits]], [[0, 0], [0, 0]]), 0) == 1
    assert chunks.fitting(together([[now, later], [now, later]], [[0, 0], [0, 0]]), 0) == 2
    assert chunks.fitting(together([[1.1 * fits, now]], [[0, 0]]), 0) == 0


def test_what_lengths_may_be_off_by_counts_as_kv_that_steps_read() -> None:
    chunks = settled()
    chunks.history.receive(replace(MODEL, c2=1e-7))
    model = chunks.target.mean_model = chunks.history.model
    kv = 0.9 * (D - model.c0 - 50 * model.c1) / model.c2
    assert chunks.fitting(together([[50.0]], [[kv]]), 0) == 1
    assert chunks.fitting(together([[50.0]], [[kv]], error=kv), 0) == 0


def decode_target_s(chunks: GapChunks, largest: int = 0) -> float:
    """How long decodes alone may take by the model of now."""
    return chunks.decode_targets(largest)[0][1]


def test_decodes_may_take_as_long_as_steps_may() -> None:
    for chunks in (GapChunks(D, 99.0, StepHistory(D)), settled()):
        assert decode_target_s(chunks) == pytest.approx(chunks.target.target_s)
        chunks.set_target_frac(0.9)
        assert decode_target_s(chunks) == pytest.approx(chunks.target.target_s)
        assert chunks.target.target_s <= 0.9 * D
        chunks.target.target_s = 3 * D
        assert decode_target_s(chunks) == pytest.approx(0.9 * D)


def test_without_prompts_the_target_is_found_anew_all_the_same() -> None:
    # A spread of 30% goes once steps of decodes alone have come; no prompt was computed since.
    chunks = settled()
    for number in range(64):
        chunks.observe(sample(20, 100, 0.03 * (1 + 0.6 * (number % 2))))
    before = chunks.target._unseen
    for _ in range(63):
        chunks.observe(sample(20, 0))
    assert chunks.target._unseen < before + 63 * 0.25


def test_decodes_inside_the_target_at_their_longest_need_no_forecast() -> None:
    chunks = settled()
    assert chunks.in_time(50, 50 * 1000, 0)
    assert not chunks.in_time(200, 50 * 1000, 0)
    assert not chunks.in_time(50, 10**7, 0)


def test_an_engine_that_is_slower_for_seconds_starts_requests_as_usual() -> None:
    chunks = settled(3000)
    many = int(0.8 * (D - MODEL.c0) / MODEL.c1)
    ending = together([[float(many)]], [[0.0]])
    assert chunks.in_time(many, 0) and chunks.fitting(ending) == 1
    for _ in range(60):
        chunks.observe(sample(20, 16, 1.8 * MODEL.predict_s(20, 6000, 16, 1600)))
    assert chunks.history.model.predict_s(many, 0, 0, 0) > D
    assert chunks.in_time(many, 0) and chunks.fitting(ending) == 1
    for _ in range(15_000):  # ten minutes: that is what it is now
        chunks.observe(sample(20, 16, 1.8 * MODEL.predict_s(20, 6000, 16, 1600)))
    assert not chunks.in_time(many, 0) and chunks.fitting(ending) == 0


def test_a_request_that_breaks_d_by_itself_is_no_reason_to_serve_nobody_beside_it() -> None:
    chunks = settled()
    largest = int(2 * D / chunks.history.model.c2)
    alone_s = chunks.history.model.predict_s(1, largest, 0, 0)
    assert decode_target_s(chunks, largest) == pytest.approx(2 * alone_s)
    assert chunks.in_time(20, largest + 20_000, largest)
    assert not chunks.in_time(20, 3 * largest, largest)


def reading(kv_read_frac: float, steps: int, kv: int = 3000) -> GapChunks:
    """A sizer whose engine took 20 ms a step for 10 decodes and ``kv`` tokens of KV."""
    chunks = GapChunks(D, 99.0, StepHistory(D, kv_read_frac=kv_read_frac))
    for _ in range(steps):
        chunks.observe(StepSample(10, kv, 0, 0, 0.02))
    return chunks


FRAC = 1e-5  # of 20 ms: 0.2 us a token


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("seen", "later", "kv", "in_time"),
    [
        ((0.0, 100), [], 10**6, True),  # it is not known what reading takes
        ((FRAC, 100), [], 3000 + 100_000, True),
        ((FRAC, 100), [], 3000 + 160_000, False),
        ((FRAC, 100, 160_000), [], 160_000, True),  # these steps have said it
        ((FRAC, 100, 160_000), [0.02] * 3, 300_000, True),  # ... for good
        # One short step, whose output came with the one before, does not say it.
        ((FRAC, 100), [0.001, 0.02], 3000 + 160_000, False),
        # Of one step nothing is known: the next one may be shorter, and says more.
        ((FRAC, 1), [], 3000, True),
        ((FRAC, 1), [], 10**6, True),
        # A guess that is far too large, 20 us a token and more, costs no more than twice the time
        # for twice the KV: starts would be held back for thousands.
        *(((frac, 100, 100_000), [], kv, kv == 200_000)
          for frac in (1e-3, 1.0) for kv in (200_000, 300_000)),
    ],
)  # fmt: skip
def test_kv_that_no_step_has_read_costs_what_its_bytes_do(seen, later, kv, in_time):
    chunks = reading(*seen)
    for step_s in later:
        chunks.observe(StepSample(10, 3000, 0, 0, step_s))
    assert chunks.in_time(10, kv) is in_time


def test_starts_go_by_that_guess_as_well() -> None:
    for kv, starts in ((100_000.0, 1), (163_000.0, 0)):
        assert reading(FRAC, 100).fitting(together([[10.0]], [[kv]])) == starts


def test_the_guess_comes_in_place_of_what_the_model_has_for_it() -> None:
    # Of 20 ms: 0.1 us a token, as these steps take.
    chunks = GapChunks(D, 99.0, StepHistory(D, kv_read_frac=5e-6))
    for k in range(400):
        kv = 1000 + 400 * (k % 100)
        chunks.observe(StepSample(10, kv, 0, 0, 0.02 + 1e-7 * kv))
    assert chunks.history.model.c2 == pytest.approx(1e-7, rel=0.1)
    assert chunks.in_time(10, 200_000)
