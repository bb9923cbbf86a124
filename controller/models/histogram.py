"""Durations counted in log-spaced bins: small to send, cheap to add, exact enough for p99."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOWEST_S = 1e-4
PER_DECADE = 20  # a bin is 12% wide: a percentile is right to 6%
BINS = 7 * PER_DECADE  # 0.1 ms to 1,000 s; the last bin holds all that is longer


def duration_bin(duration_s: float) -> int:
    """The bin for ``duration_s``; the first and last bin are open."""
    if duration_s <= LOWEST_S:
        return 0
    index = int(math.log10(duration_s / LOWEST_S) * PER_DECADE)
    return index if index < BINS else BINS - 1


def lower_edge_s(index: int) -> float:
    """The lower edge of bin ``index``, seconds."""
    return LOWEST_S * 10 ** (index / PER_DECADE)


@dataclass(frozen=True, slots=True)
class LogHistogram:
    """Counts per bin, BINS of them, and their total duration in seconds."""

    counts: tuple[int, ...] = (0,) * BINS
    total_s: float = 0.0

    @property
    def n(self) -> int:
        return sum(self.counts)

    def percentile_s(self, percent: float) -> float | None:
        """The duration that ``percent`` % do not exceed (middle of a bin); None if empty."""
        rank, seen = self.n * percent / 100, 0
        for index, count in enumerate(self.counts):
            seen += count
            if count and seen >= rank:
                return lower_edge_s(index) * 10 ** (0.5 / PER_DECADE)
        return None

    def above(self, duration_s: float) -> int:
        """How many were longer, except in the bin of ``duration_s`` itself (12% wide)."""
        return sum(self.counts[duration_bin(duration_s) + 1 :])

    @property
    def longest_s(self) -> float | None:
        """The upper edge of the highest used bin, up to 12% above the longest duration; 1,000 s for
        the last bin. None if empty."""
        used = [index for index, count in enumerate(self.counts) if count]
        return lower_edge_s(used[-1] + 1) if used else None

    def since(self, earlier: "LogHistogram") -> "LogHistogram":
        """Counts since ``earlier``, a former state of this histogram."""
        return LogHistogram(
            tuple(a - b for a, b in zip(self.counts, earlier.counts, strict=True)),
            self.total_s - earlier.total_s,
        )


def merge(histograms: Sequence[LogHistogram]) -> LogHistogram:
    """The sum of the histograms."""
    if not histograms:
        return LogHistogram()
    columns = zip(*(h.counts for h in histograms), strict=True)
    return LogHistogram(tuple(map(sum, columns)), sum(h.total_s for h in histograms))


class HistogramCounter:
    """The mutable histogram: a replica counts into it and reports its ``snapshot``."""

    def __init__(self) -> None:
        self._counts = [0] * BINS
        self._total_s = 0.0

    def add(self, duration_s: float, times: int = 1) -> None:
        self._counts[duration_bin(duration_s)] += times
        self._total_s += duration_s * times

    def snapshot(self) -> LogHistogram:
        return LogHistogram(tuple(self._counts), self._total_s)
