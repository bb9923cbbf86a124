"""Log-spaced histograms against numpy, to the width of a bin."""

import pytest

from controller.models.histogram import (
    BINS,
    HistogramCounter,
    LogHistogram,
    duration_bin,
    lower_edge_s,
    merge,
)
from tests.builders import histogram_of


def test_a_bin_is_a_twentieth_of_a_decade() -> None:
    assert lower_edge_s(0) == pytest.approx(1e-4)
    assert lower_edge_s(20) == pytest.approx(1e-3)
    assert [duration_bin(s) for s in (1.01e-4, 1.01e-3, 0.0101, 0.0114)] == [0, 20, 40, 41]


def test_the_end_bins_hold_everything_beyond_them() -> None:
    assert [duration_bin(s) for s in (0.0, 1e-9, 1e-4)] == [0, 0, 0]
    assert [duration_bin(s) for s in (990.0, 1000.0, 1e9)] == [BINS - 1] * 3


def test_an_empty_histogram_has_no_percentile() -> None:
    assert LogHistogram().n == 0
    assert merge([]) == LogHistogram()
    assert LogHistogram().percentile_s(99) is None
    assert (LogHistogram().longest_s, LogHistogram().above(0.0)) == (None, 0)


@pytest.mark.parametrize("duration_s", [2e-4, 0.0099, 1.0, 240.0])
def test_what_is_above_a_duration_is_counted_but_for_a_bins_width(duration_s: float) -> None:
    seen = histogram_of([duration_s, duration_s * 1.01, duration_s * 1.26, duration_s * 10])
    assert seen.above(duration_s) in (2, 3)
    assert seen.above(duration_s / 1.26) == 4


def test_one_gap_of_minutes_among_thousands_is_seen() -> None:
    seen = histogram_of([0.02] * 5000 + [240.0])
    assert seen.percentile_s(99.9) == pytest.approx(0.02, rel=0.06)
    assert seen.above(2.0) == 1
    assert seen.longest_s is not None
    assert 240.0 <= seen.longest_s <= 240.0 * 1.13
    assert histogram_of([1e9]).longest_s == pytest.approx(1000.0)


def test_one_duration_is_counted_as_often_as_said() -> None:
    counter = HistogramCounter()
    counter.add(0.02, times=64)
    assert counter.snapshot().n == 64
    assert counter.snapshot().total_s == pytest.approx(1.28)


def test_a_snapshot_stays_what_it_was() -> None:
    counter = HistogramCounter()
    before = counter.snapshot()
    counter.add(0.02)
    assert before.n == 0
