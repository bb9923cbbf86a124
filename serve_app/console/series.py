"""One replica over time: a point for every read, and the latency of the last seconds."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from controller.config import Sla
from controller.models.histogram import LogHistogram
from controller.records import ReplicaReport

POINTS = 300  # five minutes, one read per second
MARK_EVERY_S = 5.0
LATENCY_S, ATTAINED_S = 10.0, 60.0  # percentiles are over this time; attainment
COLUMNS = (
    "unix_s",
    "cap",
    "chunk_tokens",
    "running",
    "waiting",
    "kv_frac",
    "busy_frac",
    "itl_p50_ms",
    "itl_p99_ms",
    "ttft_p50_ms",
    "ttft_p99_ms",
)

Point = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """Times between tokens and to the first token, and how many of each missed the SLA."""

    unix_s: float
    itl: LogHistogram
    ttft: LogHistogram
    late_itl: int
    late_ttft: int

    @classmethod
    def of(cls, report: ReplicaReport, unix_s: float) -> "Latency":
        """Since the engine started."""
        return cls(unix_s, report.itl, report.ttft, report.late_itl, report.late_ttft)

    def since(self, earlier: "Latency") -> "Latency":
        """The counts since ``earlier``."""
        return Latency(
            self.unix_s,
            self.itl.since(earlier.itl),
            self.ttft.since(earlier.ttft),
            self.late_itl - earlier.late_itl,
            self.late_ttft - earlier.late_ttft,
        )


@dataclass(slots=True)
class Series:
    """The data of one replica's plots; ``points`` have the ``COLUMNS``."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS))
    _marks: deque[Latency] = field(default_factory=deque)
    _seq: int = 0

    def add(self, report: ReplicaReport, cap: int, unix_s: float) -> None:
        """Add the replica's last report and its cap; a known report adds nothing."""
        if report.seq == self._seq:
            return
        if report.seq < self._seq:  # another engine under the same name counts from 1 again
            self._marks.clear()
        self._seq = report.seq
        if not self._marks or unix_s >= self._marks[-1].unix_s + MARK_EVERY_S:
            self._marks.append(Latency.of(report, unix_s))
        while len(self._marks) > 1 and self._marks[1].unix_s <= unix_s - ATTAINED_S:
            self._marks.popleft()
        recent = self._since(report, unix_s - LATENCY_S)
        self.points.append(
            (
                round(unix_s, 3),
                cap,
                chunk_tokens(report),
                report.running,
                report.waiting,
                round(report.kv_frac, 4),
                round(report.busy_frac, 4),
                *(_ms(recent.itl, percent) for percent in (50, 99)),
                *(_ms(recent.ttft, percent) for percent in (50, 99)),
            )
        )

    def attained(self, report: ReplicaReport, unix_s: float) -> Latency:
        """The counts of the last minute, or since the first read of this replica."""
        return self._since(report, unix_s - ATTAINED_S)

    def _since(self, report: ReplicaReport, unix_s: float) -> Latency:
        before = [mark for mark in self._marks if mark.unix_s <= unix_s]
        mark = before[-1] if before else self._marks[0]
        return Latency.of(report, unix_s).since(mark)

    def row(self) -> dict[str, Any]:
        """The last point without its time; empty before the first."""
        if not self.points:
            return {}
        return dict(zip(COLUMNS[1:], self.points[-1][1:], strict=True))

    def after(self, unix_s: float) -> dict[str, list[Any]]:
        """The points after ``unix_s``, column by column."""
        points = [point for point in self.points if (point[0] or 0.0) > unix_s]
        return {name: [p[place] for p in points] for place, name in enumerate(COLUMNS)}


def chunk_tokens(report: ReplicaReport) -> int:
    """The last step's budget for prompts, tokens."""
    return max(report.token_budget - report.decode_tokens, 0)


def attained(seen: Sequence[Latency], sla: Sla) -> dict[str, float | None]:
    """Share of times between tokens, and to the first token, inside the SLA; None if unknown."""
    counted = {
        "itl": (sla.itl_ms, [(one.late_itl, one.itl.n) for one in seen]),
        "ttft": (sla.ttft_ms, [(one.late_ttft, one.ttft.n) for one in seen]),
    }
    return {
        name: None if limit_ms is None else _inside(counts)
        for name, (limit_ms, counts) in counted.items()
    }


def stalls(seen: Sequence[Latency], sla: Sla) -> int | None:
    """Gaps between tokens above 20 times the SLA; None without ``itl_ms``."""
    stall_s = sla.stall_s
    return None if stall_s is None else sum(one.itl.above(stall_s) for one in seen)


def _inside(counts: Sequence[tuple[int, int]]) -> float | None:
    late, n = (sum(column) for column in zip(*counts, strict=True))
    return round(1 - late / n, 5) if n else None


def _ms(histogram: LogHistogram, percent: float) -> float | None:
    value_s = histogram.percentile_s(percent)
    return None if value_s is None else round(value_s * 1000, 3)
