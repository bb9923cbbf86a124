"""Lengths of requests whose long ones have not ended yet."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.models.arrays import Ints
from controller.models.lengths import LengthMoments
from controller.models.live_lengths import LiveLengths
from tests.builders import moments_of

STEPS, BATCH, MEAN = 400, 60, 450
NOTHING = LengthMoments()
NOBODY = np.array([], dtype=np.int64)


def corrected(
    live: LiveLengths, ended: LengthMoments, running: Ints, prompts: LengthMoments = NOTHING
) -> LengthMoments:
    """With these output tokens of the requests that run."""
    live.update(running)
    return live.corrected(ended, prompts)


def young(lengths: Ints) -> tuple[LengthMoments, LengthMoments]:
    """A full batch from the start on, a token a step: moments of the ended, and corrected."""
    live, ended = LiveLengths(), []
    queue = iter(lengths.tolist())
    running = [[next(queue), 0] for _ in range(BATCH)]
    for step in range(1, STEPS + 1):
        for one in running:
            one[1] += 1
            if one[1] >= one[0]:
                ended.append((100, one[0]))
                live.finished(one[0])
                one[:] = [next(queue), 0]
        if step % 10 == 0:
            known = moments_of(ended)
            found = corrected(live, known, np.array([g for _, g in running]))
    return known, found


def test_answers_are_as_long_as_they_will_be_and_not_as_those_that_ended() -> None:
    ended, found = [], []
    for seed in range(20):
        known, live = young(np.random.default_rng(seed).geometric(1 / MEAN, 2000))
        ended.append(known.mean_output)
        found.append(live.mean_output)
        assert (live.n, live.input) == (known.n, known.input)
    assert np.mean(ended) < 0.5 * MEAN
    # Nobody is past 400 tokens yet, and nobody is taken to get past 800: 17% of such a law.
    assert np.mean(found) == pytest.approx(MEAN * (1 - np.exp(-800 / MEAN)), rel=0.06)


def test_answers_of_one_length_stay_so_when_the_first_few_have_ended() -> None:
    lengths = np.full(2000, 390)
    lengths[5:BATCH] = 395  # most of the first batch is about to end, nearly
    known, live = young(lengths)
    assert live.mean_output == pytest.approx(known.mean_output, rel=0.06)


@pytest.mark.parametrize("tokens", [1, 2, 7, 30])
def test_short_answers_are_counted_to_the_token(tokens: int) -> None:
    live = LiveLengths()
    for _ in range(40):  # what ended is kept, up to 500 at a time
        for _ in range(500):
            live.finished(tokens)
        ended = moments_of([(10, tokens)] * 500)
        found = corrected(live, ended, NOBODY)
    assert found.mean_output == pytest.approx(tokens, rel=0.004)
    assert found.output_sq == pytest.approx(ended.output_sq, rel=0.015)


def test_where_few_were_seen_they_end_as_often_per_token_as_all() -> None:
    live = LiveLengths()
    live.finished(100)
    # One end in 100 tokens, and as much belief as of one request, up to 200 tokens: between a
    # length that is always the same (10,000, the second moment) and an exponential law (20,000).
    found = corrected(live, moments_of([(1, 100)]), NOBODY)
    assert (found.mean_output, found.output_sq) == (99, 13_119)


def test_nobody_is_taken_to_go_on_for_longer_than_twice_what_any_did() -> None:
    live = LiveLengths()
    live.finished(10)
    found = corrected(live, moments_of([(1, 10)]), np.array([990] * 127))
    assert 990 < found.mean_output < 2 * 1030  # a bin is 3% wide


def test_prompts_are_those_that_came_where_they_are_more_than_have_ended() -> None:
    ended = moments_of([(100, 50)] * 200)
    came = moments_of([(300, 0)] * 201)
    live = LiveLengths()
    for _ in range(200):
        live.finished(50)
    found = corrected(live, ended, NOBODY, came)
    assert found.mean_input == 300
    assert found.input_sq == 200 * 300**2
    assert found.mean_output == pytest.approx(50, rel=0.03)
    assert found.output_sq == pytest.approx(ended.output_sq, rel=0.1)
    assert found.cross == pytest.approx(3 * ended.cross, rel=0.03)
    fewer = corrected(live, ended, NOBODY, moments_of([(300, 0)] * 200))
    assert (fewer.mean_input, fewer.input_sq) == (100, ended.input_sq)


def test_before_one_has_ended_nothing_is_known() -> None:
    live = LiveLengths()
    live.aborted(7)
    assert corrected(live, LengthMoments(), np.array([5, 9])) == LengthMoments()


@example([([(0, 1)], [], [1, 1])])  # 2.6 tokens and 8.4, rounded
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)), max_size=5),
            st.lists(st.integers(0, 10**6), max_size=3),
            st.lists(st.integers(0, 10**6), max_size=5),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_whatever_comes_moments_are_of_real_lengths(looks):
    live, ended = LiveLengths(), []
    for finished, aborted, running in looks:
        ended += finished
        for _, tokens in finished:
            live.finished(tokens)
        for tokens in aborted:
            live.aborted(tokens)
        known = moments_of(ended)
        found = corrected(live, known, np.array(running, dtype=np.int64))
        assert found.n == known.n
        assert found.output >= 0
        assert found.output_sq * found.n >= found.output**2 * (1 - 1e-6)
