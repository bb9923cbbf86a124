"""Laws of replayed time: what a recording took is what its replay takes, however it is cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicas.profiles.recorded_time import BLOCK_S, SPREAD, RecordedTime, Recording

steps = st.lists(
    st.tuples(st.floats(1e-3, 0.1), st.floats(0.2, 30.0)), min_size=1, max_size=40
)  # predicted, and measured as a multiple of it
cuts = st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=30)
seeds = st.integers(0, 2**32 - 1)


def recorded(drawn: list[tuple[float, float]]) -> Recording:
    predicted_s, times = np.array(drawn).T
    return Recording(predicted_s, predicted_s * times)


def replayed(recording: Recording, seed: int) -> RecordedTime:
    return RecordedTime(recording, np.random.default_rng(seed))


@given(steps, cuts, seeds)
def test_a_whole_recording_takes_its_time_however_long_the_replayed_steps_are(drawn, cuts, seed):
    recording = recorded(drawn)
    assert recording.predicted_s.sum() <= BLOCK_S  # so no jump comes between
    pieces_s = np.array(cuts) / sum(cuts) * recording.predicted_s.sum()
    time = replayed(recording, seed)
    taken_s = sum(time.time_s(piece_s) for piece_s in pieces_s)
    assert taken_s == pytest.approx(recording.measured_s.sum(), rel=1e-6)


@given(steps, cuts, seeds)
def test_more_work_never_takes_less_time_and_two_halves_take_as_long_as_the_whole(
    drawn: list[tuple[float, float]], cuts: list[float], seed: int
) -> None:
    recording = recorded(drawn)
    whole, halves = replayed(recording, seed), replayed(recording, seed)
    for work_s in cuts:
        first_s, second_s = halves.time_s(work_s / 2), halves.time_s(work_s / 2)
        assert first_s >= 0 and second_s >= 0
        assert whole.time_s(work_s) == pytest.approx(first_s + second_s, rel=1e-6, abs=1e-9)


def test_a_pause_stays_one_pause_in_steps_a_tenth_as_long() -> None:
    predicted_s = np.full(100, 0.05)
    pause_s = np.where(np.arange(100) % 20 == 0, 0.3, 0.0)
    time = replayed(Recording(predicted_s, predicted_s + pause_s), 0)
    times_s = np.array([time.time_s(0.005) for _ in range(999)])
    paused_s = times_s[times_s > SPREAD * 0.005 * (1 + 1e-6)]
    assert len(paused_s) == pytest.approx(5, abs=1)
    assert paused_s == pytest.approx(0.3, rel=0.03)
