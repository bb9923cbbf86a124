"""What the demo measures, and its table."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from controller.records import BatchLimits, ReplicaReport
from serve_app.demo.client import Answer, Ask

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]

OFF, ON, TUNED = "control off", "control on", "tuned by hand"


@dataclass(frozen=True, slots=True)
class Sample:
    """The controller's data on one replica at a time, seconds of the demo's clock."""

    at_s: float
    report: ReplicaReport
    limits: BatchLimits


Samples = Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Phase:
    """One pass of the load.

    Args:
        name: ``OFF``, ``ON`` or ``TUNED``.
        begin_s, end_s: on the demo's clock.
        asks, answers: in the same order.
        waited_frac: share of the time in which the client was ready to run and had no core; None:
            the system does not say.
        samples: by replica, the oldest first; one before the first request and one after the last.
    """

    name: str
    begin_s: float
    end_s: float
    asks: Sequence[Ask]
    answers: Sequence[Answer]
    waited_frac: float | None
    samples: Samples

    @property
    def whole(self) -> list[Answer]:
        """The answers that are complete."""
        return [answer for answer in self.answers if answer.whole]

    @property
    def gaps_s(self) -> Floats:
        """All times between chunks at the client."""
        return np.array([gap for answer in self.whole for gap in answer.itl_s])

    @property
    def ttft_s(self) -> Floats:
        return np.array([a.ttft_s for a in self.whole if a.ttft_s is not None])

    def inside(self, sla_ms: float) -> float:
        """Share of the gaps that are no longer than the SLA."""
        return float(np.mean(self.gaps_s <= sla_ms / 1000)) if len(self.gaps_s) else 0.0

    @property
    def longest_s(self) -> float:
        """The longest time that any client waited for a next token."""
        return float(self.gaps_s.max(initial=0.0))

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
    """A percentile; None: there is no value."""
    return float(np.percentile(values, percent)) if len(values) else None


def client_table(phases: Sequence[Phase], sla_ms: float) -> Table:
    """A table of the phases, as the client saw them."""
    table = Table(title="The same requests each time, measured at the client")
    table.add_column("")
    for phase in phases:
        table.add_column(phase.name.replace(" ", "\n", 1), justify="right", no_wrap=True)

    shown: dict[str, Callable[[Phase], str]] = {
        f"time between tokens (ITL) inside {sla_ms:g} ms": lambda p: f"{p.inside(sla_ms):.2%}",
        "ITL p50": lambda p: _ms(at(p.gaps_s, 50)),
        "ITL p99": lambda p: _ms(at(p.gaps_s, 99)),
        "longest stall": lambda p: _ms(p.longest_s),
        "time to first token (TTFT) p50": lambda p: _ms(at(p.ttft_s, 50)),
        "time to first token (TTFT) p99": lambda p: _ms(at(p.ttft_s, 99)),
        "tokens/s": lambda p: f"{p.tokens_per_s:.0f}",
        "whole answers": lambda p: f"{len(p.whole)} of {len(p.answers)}",
        "client waited for a core": lambda p: _share(p.waited_frac),
        "requests sent late, p99": lambda p: _ms(p.late_s),
    }
    for name, cell in shown.items():
        table.add_row(name, *map(cell, phases))
    return table


def _share(frac: float | None) -> str:
    return "-" if frac is None else f"{frac:.1%}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
