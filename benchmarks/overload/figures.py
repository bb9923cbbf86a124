"""The figures of a run under overload, counted at the client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.live.stock_client import Attempt
from benchmarks.overload.client import Outcome

SERVER_ERROR, UNAVAILABLE = 500, 503
SETTLED_S = 10.0  # after the overload, goodput should be back


@dataclass(frozen=True, slots=True)
class Slo:
    """The SLO of each class, seconds."""

    ttft_s: Mapping[str, float]
    itl_s: float

    def met(self, outcome: Outcome) -> bool:
        """Whether a request met it."""
        return outcome.good(self.ttft_s, self.itl_s)


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the run at one load, in multiples of the capacity."""

    load: float
    start_s: float
    end_s: float

    def goodput_per_s(self, outcomes: Sequence[Outcome], slo: Slo, skip_s: float = 0.0) -> float:
        """Requests/s that ended in it, after its first ``skip_s``, inside their SLO."""
        start_s = self.start_s + skip_s
        good = sum(start_s <= o.ended_s < self.end_s and slo.met(o) for o in outcomes)
        return good / (self.end_s - start_s)

    def of(self, outcomes: Sequence[Outcome], name: str | None = None) -> list[Outcome]:
        """The requests that were first sent in it, of one class or all."""
        return [
            o
            for o in outcomes
            if self.start_s <= o.planned.at_s < self.end_s and name in (None, o.planned.name)
        ]


def phases_of(loads: Sequence[float], seconds: float) -> list[Phase]:
    """Consecutive phases of equal length."""
    return [Phase(load, i * seconds, (i + 1) * seconds) for i, load in enumerate(loads)]


@dataclass(frozen=True, slots=True)
class Figures:
    """One run's figures.

    Attributes:
        goodput_per_s: of each phase.
        recovered_frac: goodput of the last phase from ``SETTLED_S`` on, over that of the first; NaN
            if the phase is not longer than that.
        attainment: share of the requests of each class inside their SLO, by phase.
        refused_s: 99th percentile from an attempt to its 429, seconds; NaN: none.
        errors: answers of 500 and above but 503, and of no status at all.
        unavailable: answers of 503.
        unfinished: requests that had no end when the run was ended.
        wait_error_s: median of |predicted - real| wait; NaN if nothing was predicted.
        accepted_late: share of the admitted requests without a token by their deadline: late ones,
            those answered 503, those that still waited when the run was ended.
    """

    goodput_per_s: tuple[float, ...]
    recovered_frac: float
    attainment: dict[str, tuple[float, ...]]
    refused_s: float
    attempts: float
    errors: int
    unavailable: int
    unfinished: int
    broken: int
    wait_error_s: float
    accepted_late: float


def figures(outcomes: Sequence[Outcome], phases: Sequence[Phase], slo: Slo) -> Figures:
    """The first phase is 1x, and so is the last."""
    goodput = tuple(phase.goodput_per_s(outcomes, slo) for phase in phases)
    attempts = [a for o in outcomes for a in o.attempts]
    refused = [
        a.answered_s - a.sent_s for a in attempts if a.status == 429 and a.answered_s is not None
    ]
    waits = [
        abs(o.predicted_s - took_s)
        for o in outcomes
        if o.predicted_s is not None and (took_s := o.ttft_s) is not None
    ]
    admitted = [o for o in outcomes if o.ttft_s is not None]
    late = sum((o.ttft_s or 0.0) > slo.ttft_s[o.planned.name] for o in admitted)
    timed_out = sum(a.status == UNAVAILABLE for a in attempts)
    unfinished = [o for o in outcomes if o.unfinished]
    still_waiting = sum(
        o.ttft_s is None and o.ended_s - o.attempts[-1].sent_s > slo.ttft_s[o.planned.name]
        for o in unfinished
        if o.attempts and o.attempts[-1].status is None
    )
    missed = late + timed_out + still_waiting
    last = phases[-1]
    settled = last.end_s - last.start_s > SETTLED_S
    return Figures(
        goodput,
        last.goodput_per_s(outcomes, slo, SETTLED_S) / max(goodput[0], 1e-9)
        if settled
        else float("nan"),
        {
            name: tuple(_share(phase.of(outcomes, name), slo) for phase in phases)
            for name in slo.ttft_s
        },
        float(np.percentile(refused, 99)) if refused else float("nan"),
        float(np.mean([len(o.attempts) for o in outcomes])),
        sum(_failed(a, o) for o in outcomes for a in o.attempts),
        timed_out,
        len(unfinished),
        sum(o.broken for o in outcomes),
        float(np.median(waits)) if waits else float("nan"),
        missed / max(len(admitted) + timed_out + still_waiting, 1),
    )


def _failed(attempt: Attempt, outcome: Outcome) -> bool:
    if attempt.status is None:
        return not (outcome.unfinished and attempt is outcome.attempts[-1])
    return attempt.status >= SERVER_ERROR and attempt.status != UNAVAILABLE


def _share(outcomes: Sequence[Outcome], slo: Slo) -> float:
    met = [slo.met(o) for o in outcomes]
    return float(np.mean(met)) if met else float("nan")
