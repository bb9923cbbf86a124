"""Prompts where the SLA leaves them no room, and who may start beside the decodes."""

import numpy as np
import pytest

from controller.models.lookahead import Floats, Forecast
from controller.models.step_time import StepModel
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample

TRUE = StepModel(0.02, 2e-4, 1e-7, 1e-4, 1e-8, 0.0)


def starved(taken: bool, floor: float = 0.02, decodes: int = 200) -> list[int]:
    """100 chunks of a batch that leaves prompts no room; whether what is offered is computed."""
    sizer = ChunkSizer(0.05, 99, floor)
    sizer.receive(TRUE)
    chunks = []
    for _ in range(100):
        chunks.append(sizer.chunk(decodes, 300 * decodes, 0, least=16, most=2048))
        assert sizer.forced == (chunks[-1] > 0)
        prefill = chunks[-1] if taken else 0
        features = decodes, 300 * decodes, prefill, prefill * prefill // 2
        sizer.observe(StepSample(*features, TRUE.predict_s(*features)))
    return chunks


@pytest.mark.parametrize(("floor", "every"), [(0.02, 50), (0.05, 20), (0.5, 2)])
def test_the_share_of_steps_that_compute_prompts_without_room_is_the_floor(
    floor: float, every: int
) -> None:
    chunks = starved(True, floor)
    given = [number for number, chunk in enumerate(chunks, start=1) if chunk]
    assert given == list(range(every, 101, every))


def test_such_a_step_takes_the_sla_longer_than_its_decodes() -> None:
    chunk = max(starved(True))
    longer_s = TRUE.predict_s(0, 0, chunk, chunk * chunk / 2) - TRUE.c0
    assert longer_s == pytest.approx(0.05, rel=0.01)


def test_without_a_floor_prompts_wait() -> None:
    assert sum(starved(True, 0.0)) == 0


def test_what_was_offered_and_not_computed_is_offered_again() -> None:
    given = [number for number, chunk in enumerate(starved(False), start=1) if chunk]
    assert given == list(range(50, 101, 2))


def test_who_starts_in_such_a_step_need_not_fit_beside_the_decodes() -> None:
    sizer = ChunkSizer(0.05, 99, 0.5)
    sizer.receive(TRUE)
    much = forecast_of(np.full((3, 2), 200.0), np.full((3, 2), 60_000.0))
    for expected in (False, True, False):
        chunk = sizer.chunk(200, 60_000, 0, least=16, most=2048)
        assert sizer.in_time(200, 60_000) == expected
        assert sizer.fitting(much) == (3 if expected else 0)
        sizer.observe(StepSample(200, 60_000, chunk, 0, TRUE.predict_s(200, 60_000, chunk, 0)))


def test_where_there_is_room_for_a_block_no_prompt_is_starved() -> None:
    sizer = ChunkSizer(0.05, 99, 0.5)
    sizer.receive(TRUE)
    for _ in range(10):  # memory is full, say: it is not taken
        assert sizer.chunk(20, 6000, 0, least=16, most=2048) >= 16
        assert not sizer.forced


def test_a_little_that_is_taken_is_not_nothing() -> None:
    sizer = ChunkSizer(0.05, 99, 0.5)
    sizer.receive(TRUE)
    for _ in range(10):
        assert sizer.chunk(100, 20_000, 0, least=16, most=2048) < 16
        assert not sizer.forced
        sizer.observe(StepSample(100, 20_000, 4, 8, TRUE.predict_s(100, 20_000, 4, 8)))


def test_what_decodes_read_counts_not_what_they_hold_on_average() -> None:
    sizer = ChunkSizer(0.05, 99)
    sizer.receive(TRUE)
    alive = np.full((2, 2), 50.0)
    at_peak = forecast_of(alive, np.array([[20_000.0, 20_000], [20_000, 200_000]]))
    assert sizer.fitting(at_peak) == 1  # 50 ms with the second: 30 and 20 of reading
    shared = forecast_of(alive, np.full((2, 2), 200_000.0), mean=np.zeros((2, 2)))
    assert sizer.fitting(shared) == 0
    assert sizer.fitting(forecast_of(alive, np.full((2, 2), 20_000.0))) == 2
    assert sizer.fitting(forecast_of(np.array([[50.0], [150.0]]), np.zeros((2, 1)))) == 1


def forecast_of(alive: Floats, reads: Floats, mean: Floats | None = None) -> Forecast:
    """A forecast of which a step's time sees only these; memory's part is far too large."""
    held = np.full_like(alive, 1e9) if mean is None else mean
    return Forecast(alive, held, held, held, held, reads)
