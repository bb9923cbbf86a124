"""What clients saw of their requests, whether over HTTP, from an engine or from a replay."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.config import Sla
from serve_app.demo.client import Answer, Ask
from simulator.virtual.trace import Trace

DELAY_S = 2.0  # the median wait that a capacity allows
NOISE = 0.02  # of a time at a client: 1 ms of 50
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a client saw, in seconds of the profile's time.

    Args:
        arrival_s, ttft_s, tpot_s: of each request, shape (n,); NaN TTFT: none came.
        gap_s, gap_end_s: times between tokens, and when each ended, shape (gaps,).
    """

    arrival_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    gap_s: Floats
    gap_end_s: Floats

    def later_half(self) -> "Seen":
        """Without the first half, which fills the engines; by arrivals."""
        half_s = self.arrival_s.max() / 2
        late, gap_late = self.arrival_s >= half_s, self.gap_end_s >= half_s
        gap_late &= self.gap_end_s <= 2 * half_s
        return Seen(
            self.arrival_s[late],
            self.ttft_s[late],
            self.tpot_s[late],
            self.gap_s[gap_late],
            self.gap_end_s[gap_late],
        )

    @property
    def p99_itl_ms(self) -> float:
        return float(np.percentile(self.gap_s, 99)) * 1000 if len(self.gap_s) else 0.0

    @property
    def median_ttft_s(self) -> float:
        return float(np.median(np.nan_to_num(self.ttft_s, nan=np.inf)))

    def inside(self, sla: Sla) -> float:
        """Share of requests inside ``itl_ms`` on average and inside ``ttft_ms``."""
        tpot_s, ttft_s = (sla.itl_ms or np.inf) / 1000, (sla.ttft_ms or np.inf) / 1000
        return float(((self.ttft_s <= ttft_s) & (self.tpot_s <= tpot_s * (1 + NOISE))).mean())

    def holds(self, sla: Sla) -> bool:
        """Capacity as in G3, seen from clients: p99 ITL and the median wait, in the later half."""
        late = self.later_half()
        in_time = late.p99_itl_ms <= (sla.itl_ms or np.inf) * (1 + NOISE)
        return bool(in_time and late.median_ttft_s <= DELAY_S)


def together(parts: Sequence[Seen]) -> Seen:
    """What the clients of several replicas saw."""
    names = ("arrival_s", "ttft_s", "tpot_s", "gap_s", "gap_end_s")
    return Seen(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def of_answers(asks: Sequence[Ask], answers: Sequence[Answer], time_scale: float = 1.0) -> Seen:
    """At the client of a server whose time runs ``time_scale`` times slower."""
    arrival = np.array([ask.at_s for ask in asks]) / time_scale
    ttft = np.array([np.nan if a.ttft_s is None else a.ttft_s for a in answers]) / time_scale
    gaps = [np.array(a.itl_s) / time_scale for a in answers]
    tpot = np.array([g.sum() / max(a.tokens - 1, 1) for g, a in zip(gaps, answers, strict=True)])
    ends = [s + t + g.cumsum() for s, t, g in zip(arrival, ttft, gaps, strict=True)]
    return Seen(arrival, ttft, tpot, np.concatenate(gaps), np.concatenate(ends))


def of_trace(trace: Trace) -> Seen:
    """At the client of a replay, had it one."""
    arrival = np.array([o.request.arrival_s for o in trace.outcomes])
    first = np.array(
        [np.nan if o.first_token_s is None else o.first_token_s for o in trace.outcomes]
    )
    last = np.array([np.nan if o.finished_s is None else o.finished_s for o in trace.outcomes])
    tokens = np.array([max(o.tokens - 1, 1) for o in trace.outcomes])
    return Seen(
        arrival, first - arrival, (last - first) / tokens, trace.gaps.length_s, trace.gaps.end_s
    )
