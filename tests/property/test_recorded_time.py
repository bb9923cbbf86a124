"""Laws of replayed time: what a recording took is what its replay takes, however it is cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicas.profiles.recorded_time import BLOCK_S, RecordedTime, Recording

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
