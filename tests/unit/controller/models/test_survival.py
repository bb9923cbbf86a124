"""Survival of output lengths: Kaplan-Meier with a prior, its error, and the alarm."""

import numpy as np
import pytest

from controller.models.shift_alarm import ShiftAlarm
from controller.models.survival import (
    AGES,
    BINS,
    EDGES,
    LONGEST,
    PRIOR_REQUESTS,
    TYPICAL,
    Exposure,
    LengthHistory,
    OutputCounts,
    Survival,
    length_bin,
)
from tests.builders import outlasting


def seen_of(*lengths: int) -> Exposure:
    """What whole answers of these lengths show."""
    return Exposure.of_finished(np.bincount([length_bin(x) for x in lengths], minlength=BINS))


NOBODY = np.array([], dtype=np.int64)


@pytest.mark.parametrize("tokens", [1, 2, 13, 128, 5000, EDGES[-1], 10**7])
def test_a_length_is_in_the_bin_that_begins_at_it_or_before(tokens: int) -> None:
    index = length_bin(tokens)
    assert EDGES[index] <= tokens
    assert index == BINS - 1 or tokens < EDGES[index + 1]


def test_knowing_nothing_the_typical_length_and_what_lasts_lasts() -> None:
    nothing = Survival(Exposure.nothing())
    median = next(x for x in range(1, 4000) if outlasting(nothing, x) < 0.5)
    assert TYPICAL / 3 < median < TYPICAL
    # Who got to twice the median is more likely to go on as long again than one that begins.
    further = outlasting(nothing, 3 * median) / outlasting(nothing, 2 * median)
    assert further > outlasting(nothing, median)


def test_of_ages_no_request_was_seen_at_more_is_expected_the_fewer_have_ended() -> None:
    young = np.full(200, 50)
    none, some = LengthHistory(), LengthHistory()
    none.update([], [], young, None)
    some.update([20] * 40, [], young[40:], None)
    long, short = outlasting(Survival(none.seen), 1000), outlasting(Survival(some.seen), 1000)
    assert long > outlasting(Survival(Exposure.nothing()), 1000) > short


def test_who_still_runs_counts_as_having_outlived_what_it_has_generated() -> None:
    # Ten ended at 10 tokens, ten run and have generated 50: half outlive 10, not none.
    alone, censored = LengthHistory(), LengthHistory()
    alone.update([10] * 10, [], NOBODY, None)
    censored.update([10] * 10, [], np.full(10, 50), None)
    assert outlasting(Survival(alone.seen), 12) < 0.2
    expected = 1 - 10 / (20 + PRIOR_REQUESTS)
    assert outlasting(Survival(censored.seen), 12) == pytest.approx(expected, abs=0.05)


def test_who_was_aborted_counts_for_what_it_has_shown() -> None:
    history = LengthHistory()
    history.update([], [], np.full(10, 50), None)
    history.update([], [50] * 10, NOBODY, None)
    assert history.seen.at_risk[length_bin(40)] == 10
    assert history.seen.at_risk[length_bin(60)] == 0


def test_a_steady_batch_does_not_make_answers_seem_longer() -> None:
    # Exponential answers, 150 always running: exposures count once, whenever they were seen.
    rng = np.random.default_rng(3)
    lengths, said = rng.geometric(1 / 100, 150), np.zeros(150, dtype=np.int64)
    history, ended = LengthHistory(), list[int]()
    for step in range(2000):
        said += 1
        done = said >= lengths
        ended += said[done].tolist()
        lengths[done], said[done] = rng.geometric(1 / 100, done.sum()), 0
        if step % 10 == 9:
            history.update(ended, [], said, None)
            ended = []
    survival = Survival(history.seen)
    assert outlasting(survival, 100) == pytest.approx(np.exp(-1), abs=0.04)
    assert outlasting(survival, 200) == pytest.approx(np.exp(-2), abs=0.03)


def test_where_all_began_together_as_many_end_as_are_expected_to() -> None:
    # Log-normal answers of 1,800 tokens in the middle: every age is one that nobody was seen at.
    lengths = np.random.default_rng(0).lognormal(7.5, 1.0, 200).astype(int)
    history, expected, seen = LengthHistory(), 0.0, Exposure.nothing()
    for step in range(8, 3000, 8):
        known = Survival(history.seen)
        ended, going_on = lengths[(step - 8 < lengths) & (lengths <= step)], lengths > step
        history.update(ended.tolist(), [], np.full(going_on.sum(), step), None)
        seen = seen.times(np.exp(-len(ended) / 500))
        expected += float(known.share @ (history.seen.at_risk - seen.at_risk))
        seen = history.seen
    assert expected == pytest.approx((lengths < 3000).sum(), rel=0.15)


def test_the_error_of_the_curve_is_greenwoods() -> None:
    # 60 of 100 end in one bin: Var(log S) = d / (n (n - d)), the prior being small beside it.
    _, error = Survival(seen_of(*[10] * 60, *[100] * 40)).by_token(12)
    assert error[12] == pytest.approx(60 / (100 * 40), rel=0.1)


def test_a_known_length_is_known() -> None:
    fixed = Survival(seen_of(*[128] * 400))
    assert outlasting(fixed, 100) > 0.97
    assert outlasting(fixed, 140) < 0.03
    assert fixed.longest <= 140


@pytest.mark.parametrize(
    ("lengths", "alike"),
    [
        ([], 1.0),
        ([128], 1.0),
        ([128, 128], 1.0),
        ([128, 900], 0.5),
        ([128] * 9 + [900] * 3, (81 + 9) / 144),
        ([1] * 400, 1.0),
        ([129, 131], 1.0),  # a bin
        (list(range(1, 31)), 1 / 30),
    ],
)
def test_how_often_two_answers_are_of_one_length(lengths: list[int], alike: float) -> None:
    assert Survival(seen_of(*lengths)).alike == pytest.approx(alike)


def test_it_is_of_those_alone_that_ended_however_much_is_forgotten() -> None:
    seen = seen_of(*[128] * 9, *[900] * 3)
    longer = Exposure(seen.ended, seen.at_risk + 50)
    for one in (longer, longer.times(0.3)):
        assert Survival(one).alike == pytest.approx(90 / 144)
    assert Survival(longer.times(0.01)).alike == 1.0


def test_only_the_newest_are_remembered() -> None:
    counter = OutputCounts(size=3)
    for length in (1, 1, 5, 5, 5):
        counter.add(length)
    assert (len(counter), counter.counts[length_bin(1)], counter.counts[length_bin(5)]) == (3, 0, 3)


def test_the_alarm_is_silent_while_ends_come_as_expected_and_rings_when_they_do_not() -> None:
    rng = np.random.default_rng(1)
    alarm = ShiftAlarm()
    assert not any(alarm.add(float(ends), 2.0) for ends in rng.poisson(2.0, 1000))
    assert any(alarm.add(float(ends), 2.0) for ends in rng.poisson(6.0, 10))
    assert any(alarm.add(0.0, 2.0) for _ in range(10))


def test_a_change_of_lengths_drops_what_was_known_and_equal_answers_that_end_together_do_not() -> (
    None
):
    history = LengthHistory()
    history.update([64] * 300, [], NOBODY, None)
    for _ in range(20):  # waves that end all at once
        known = Survival(history.seen)
        assert not history.update([], [], np.full(50, 63), known)
        assert not history.update([64] * 50, [], NOBODY, known)
    known = Survival(history.seen)
    dropped = [history.update([], [], np.full(50, 60 + k), known) for k in range(1, 60)]
    assert any(dropped)
    assert outlasting(Survival(history.seen), 100) > 0.7


@pytest.mark.parametrize("longest", [0, 1, 33, 34, 1000, 2 * LONGEST, 3 * LONGEST])
def test_every_token_is_between_the_ages_it_is_known_at(longest: int) -> None:
    counts = OutputCounts()
    for tokens in (1, 7, 40, 41, 900, 70_000):
        counts.add(tokens)
    known = Survival(Exposure.of_finished(counts.counts))
    alive, error = known.by_token(longest)
    every = np.arange(min(longest, 2 * LONGEST) + 1)
    assert alive.shape == error.shape == every.shape
    np.testing.assert_allclose(alive, np.exp(-np.interp(every, AGES, known._hazard)), rtol=1e-9)
    np.testing.assert_allclose(error, np.interp(every, AGES, known._error), rtol=1e-9)
