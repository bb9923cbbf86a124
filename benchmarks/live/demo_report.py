"""What the demo prints: the clients' table, the replicas' table, and what held of its claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from benchmarks.live.load import Answer, Ask
from benchmarks.live.machine import Shares
from controller.models.histogram import LogHistogram
from controller.records import ReplicaReport
from serve_app.sparkline import sparkline

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

OTHERS_FRAC = 0.15  # of the cores that other programs may take in a fair comparison
WAITED_FRAC = 0.10  # of its time that the client may wait for a core
LATE_S = 0.25  # by which requests may be sent late, at p99
P99_AT_MOST, TOKENS_AT_LEAST = 1 / 3, 0.9  # control on over off
SPARK = 14


@dataclass(frozen=True, slots=True)
class Sample:
    """What the controller knew of one replica at a moment, seconds of the demo's clock."""

    at_s: float
    report: ReplicaReport
    enforced: bool


Samples = Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Phase:
    """One pass of the load.

    Args:
        enforced: whether control was on.
        begin_s, end_s: on the demo's clock.
        asks, answers: in the same order.
        shares: what else the machine did meanwhile.
        samples: by replica, the oldest first; one before the first request and one after the last.
    """

    enforced: bool
    begin_s: float
    end_s: float
    asks: Sequence[Ask]
    answers: Sequence[Answer]
    shares: Shares
    samples: Samples

    @property
    def whole(self) -> list[Answer]:
        """The answers that ended as they were asked for."""
        return [answer for answer in self.answers if answer.whole]

    @property
    def gaps_s(self) -> Floats:
        """All times between chunks at the client."""
        return np.array([gap for answer in self.whole for gap in answer.itl_s])

    @property
    def ttft_s(self) -> Floats:
        return np.array([a.ttft_s for a in self.whole if a.ttft_s is not None])

    @property
    def tokens_per_s(self) -> float:
        return sum(a.tokens for a in self.whole) / (self.end_s - self.begin_s)

    @property
    def late_s(self) -> float:
        """By how much requests were sent late, p99."""
        return at([a.late_s for a in self.answers], 99) or 0.0

    def gap_ends(self) -> tuple[Floats, Floats]:
        """When each gap ended, on the demo's clock, and how long it was; seconds."""
        ends = [
            self.begin_s + ask.at_s + a.late_s + (a.ttft_s or 0.0) + np.cumsum(a.itl_s)
            for ask, a in zip(self.asks, self.answers, strict=True)
            if a.whole and a.itl_s
        ]
        gaps = [np.array(a.itl_s) for a in self.whole if a.itl_s]
        nothing = np.zeros(0)
        return np.concatenate([nothing, *ends]), np.concatenate([nothing, *gaps])


def at(values: Sequence[float] | Floats, percent: float) -> float | None:
    """A percentile; None where there is nothing."""
    return float(np.percentile(values, percent)) if len(values) else None


def client_table(off: Phase, on: Phase, sla_ms: float) -> Table:
    """Before and after, as the client saw it."""
    table = Table(title="The same requests twice, measured at the client")
    table.add_column("")
    table.add_column("control off\n(vLLM's limits)", justify="right")
    table.add_column("control on", justify="right")

    def row(name: str, shown: Mapping[bool, str]) -> None:
        table.add_row(name, shown[False], shown[True])

    phases = {False: off, True: on}
    for percent in (50, 99):
        row(f"time between tokens (ITL), p{percent}", _times(phases, "gaps_s", percent))
    inside = {
        key: f"{np.mean(phase.gaps_s <= sla_ms / 1000):.2%}" if len(phase.gaps_s) else "-"
        for key, phase in phases.items()
    }
    row(f"ITL inside the SLA of {sla_ms:g} ms", inside)
    for percent in (50, 99):
        row(f"time to first token (TTFT), p{percent}", _times(phases, "ttft_s", percent))
    row("tokens/s", {k: f"{p.tokens_per_s:.0f}" for k, p in phases.items()})
    whole = {k: f"{len(p.whole)} of {len(p.answers)}" for k, p in phases.items()}
    row("whole answers", whole)
    waited = {
        k: "-" if p.shares.waited_frac is None else f"{p.shares.waited_frac:.1%}"
        for k, p in phases.items()
    }
    row("client waited for a core", waited)
    row("requests sent late, p99", {k: f"{p.late_s * 1000:.0f} ms" for k, p in phases.items()})
    return table


def _times(phases: Mapping[bool, Phase], name: str, percent: float) -> dict[bool, str]:
    found = {key: at(getattr(phase, name), percent) for key, phase in phases.items()}
    return {key: "-" if v is None else f"{v * 1000:.0f} ms" for key, v in found.items()}


def replica_table(off: Phase, on: Phase) -> Table:
    """One row per replica, as the controller saw it: its cap while control was on, and ITL."""
    table = Table(title="The replicas, as the controller saw them")
    for name in ("replica", "cap over time", "cap", "step\nbound by", "running\nat most"):
        table.add_column(name, no_wrap=True)
    table.add_column("KV\nuse", justify="right", no_wrap=True)
    table.add_column("ITL p99 ms\noff / on", justify="right", no_wrap=True)
    for replica_id, samples in sorted(on.samples.items()):
        seen = [sample.report for sample in samples]
        caps = [report.max_running for report in seen]
        reasons = [str(report.reason) for report in seen if report.running] or ["-"]
        before = _itl([sample.report for sample in off.samples.get(replica_id, ())])
        table.add_row(
            replica_id[-5:],
            sparkline(caps, width=SPARK),
            f"{min(caps)} to {max(caps)}",
            max(set(reasons), key=reasons.count),
            str(max(report.running for report in seen)),
            f"{max(report.kv_frac for report in seen):.0%}",
            f"{_ms(before)} / {_ms(_itl(seen))}",
        )
    return table


def _itl(reports: Sequence[ReplicaReport]) -> LogHistogram:
    return reports[-1].itl.since(reports[0].itl) if reports else LogHistogram()


def _ms(histogram: LogHistogram) -> str:
    value = histogram.percentile_s(99)
    return "-" if value is None else f"{value * 1000:.0f}"


def caps_moved(phase: Phase) -> bool:
    """Whether every replica's cap took more than one value."""
    caps = [{sample.report.max_running for sample in seen} for seen in phase.samples.values()]
    return bool(caps) and all(len(values) > 1 for values in caps)


def too_busy(phases: Sequence[Phase]) -> str | None:
    """Why times at the client mean nothing on this machine now; None: they do."""
    shares = [phase.shares for phase in phases]
    most = max(shares, key=lambda one: one.others_cores / one.cores)
    if most.others_cores > OTHERS_FRAC * most.cores:
        return f"other programs took {most.others_cores:.1f} of {most.cores} cores"
    waited = max(one.waited_frac or 0.0 for one in shares)
    if waited > WAITED_FRAC:
        return f"the client waited for a core {waited:.0%} of the time"
    late_s = max(phase.late_s for phase in phases)
    if late_s > LATE_S:
        return f"requests were sent up to {late_s * 1000:.0f} ms late"
    return None


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence, and whether it held.

    Args:
        target: a figure to reach, which another machine may miss; it does not fail the demo.
    """

    text: str
    held: bool
    target: bool = False

    def line(self) -> str:
        """For the terminal."""
        words = ("missed", "reached") if self.target else ("DID NOT HOLD", "held")
        return f"{words[self.held]}: {self.text}"


def claims(off: Phase, on: Phase, *, fair: bool) -> list[Claim]:
    """What the demo stands for; of times only where they could be compared."""
    asked = len(off.answers) + len(on.answers)
    whole = len(off.whole) + len(on.whole)
    found = [
        Claim(f"{whole} of {asked} answers whole", whole == asked),
        Claim("the cap of each replica moved while control was on", caps_moved(on)),
    ]
    before, after = at(off.gaps_s, 99), at(on.gaps_s, 99)
    if fair and before and after and off.tokens_per_s:
        share, tokens = after / before, on.tokens_per_s / off.tokens_per_s
        found += [
            Claim(
                f"p99 ITL {share:.2f} of what it is without control, at most {P99_AT_MOST:.2f}",
                share <= P99_AT_MOST,
                target=True,
            ),
            Claim(
                f"tokens/s {tokens:.2f} of what it is without control, at least"
                f" {TOKENS_AT_LEAST:.2f}",
                tokens >= TOKENS_AT_LEAST,
                target=True,
            ),
        ]
    return found
