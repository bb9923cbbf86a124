"""Survival of output lengths: Kaplan-Meier with a prior, its error, and the alarm."""

import numpy as np
import pytest

from controller.models.survival import (
    BINS,
    EDGES,
    PRIOR_REQUESTS,
    TYPICAL,
    OutputCounts,
    ShiftAlarm,
    Survival,
    bin_of,
)


def counts_of(*lengths: int) -> list[int]:
    counter = OutputCounts()
    for length in lengths:
        counter.add(length)
    return counter.counts


@pytest.mark.parametrize("tokens", [1, 2, 13, 128, 5000, EDGES[-1], 10**7])
def test_a_length_is_in_the_bin_that_begins_at_it_or_before(tokens: int) -> None:
    index = bin_of(tokens)
    assert EDGES[index] <= tokens
    assert index == BINS - 1 or tokens < EDGES[index + 1]


def test_knowing_nothing_half_of_all_answers_are_longer_than_the_typical_one() -> None:
    nothing = Survival([0] * BINS)
    assert nothing.survival(int(TYPICAL)) == pytest.approx(0.5, abs=0.01)
    # The law of what lasts: from TYPICAL on, half get to three times that.
    assert nothing.survival(int(3 * TYPICAL)) == pytest.approx(0.25, abs=0.01)


def test_who_still_runs_counts_as_having_outlived_what_it_has_said() -> None:
    # Ten ended at 10 tokens, ten run and have said 50: half outlive 10, not none.
    ended = counts_of(*[10] * 10)
    alone, censored = Survival(ended), Survival(ended, [50] * 10)
    prior = PRIOR_REQUESTS
    assert alone.survival(12) < 0.2
    assert censored.survival(12) == pytest.approx(1 - 10 / (20 + prior), abs=0.05)


def test_the_error_of_the_curve_is_greenwoods() -> None:
    # 60 of 100 end in one bin: Var(log S) = d / (n (n - d)), the prior being small beside it.
    many = Survival(counts_of(*[10] * 60, *[100] * 40))
    _, error = many.at(np.array([12]))
    assert error[0] == pytest.approx(60 / (100 * 40), rel=0.1)


def test_a_known_length_is_known() -> None:
    fixed = Survival(counts_of(*[128] * 400))
    assert fixed.survival(100) > 0.97
    assert fixed.survival(140) < 0.03
    assert fixed.longest <= 140


def test_the_mean_age_of_who_runs_is_half_a_fixed_length_and_all_of_an_exponential_one() -> None:
    mean, age = Survival(counts_of(*[200] * 500)).means()
    assert (mean, age) == (pytest.approx(200, rel=0.05), pytest.approx(100, rel=0.06))
    rng = np.random.default_rng(0)
    mean, age = Survival(counts_of(*rng.geometric(1 / 200, 500).tolist())).means()
    assert mean == pytest.approx(200, rel=0.15)
    assert age == pytest.approx(200, rel=0.25)


def test_only_the_newest_are_remembered() -> None:
    counter = OutputCounts(size=3)
    for length in (1, 1, 5, 5, 5):
        counter.add(length)
    assert (len(counter), counter.counts[bin_of(1)], counter.counts[bin_of(5)]) == (3, 0, 3)
    counter.keep_last(1)
    assert sum(counter.counts) == len(counter) == 1


def test_the_alarm_is_silent_on_its_own_distribution_and_rings_on_another() -> None:
    rng = np.random.default_rng(1)
    known = Survival(counts_of(*rng.geometric(1 / 100, 500).tolist()))
    alarm = ShiftAlarm()
    same = [alarm.add(known.rank(x)) for x in rng.geometric(1 / 100, 2000).tolist()]
    assert sum(same) == 0
    longer = [alarm.add(known.rank(x)) for x in rng.geometric(1 / 600, 64).tolist()]
    assert any(longer)
