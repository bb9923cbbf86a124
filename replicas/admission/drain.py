"""How fast waiting requests are served: measured while some wait, or by the step model. Pure."""

import math
from dataclasses import dataclass

from controller.config import Sla
from controller.records import EngineReport

SPREAD_S = 5.0  # what is older counts for less than 1/e
LEAST_STARTS = 3.0  # fewer say nothing yet
LEAST_SHARE = 0.02  # of the drain, that is left to a class however many go before it


class DrainRate:
    """Starts and prompt tokens per second of the time in which somebody waited.

    An idle replica's clock stands still: what it could do is not what it was asked to do.
    """

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._busy_s = self._starts = self._tokens = 0.0

    def pass_time(self, now_s: float, *, waiting: bool) -> None:
        """Time has passed, in which some request waited or none did."""
        passed_s = max(now_s - self._now_s, 0.0)
        self._now_s = max(now_s, self._now_s)
        if waiting and passed_s:
            kept = math.exp(-passed_s / SPREAD_S)
            self._busy_s = self._busy_s * kept + SPREAD_S * (1 - kept)
            self._starts *= kept
            self._tokens *= kept

    def started(self, prompt_tokens: int) -> None:
        """A waiting request has its first token."""
        self._starts += 1
        self._tokens += prompt_tokens

    @property
    def requests_per_s(self) -> float | None:
        """None if too few started to say."""
        return self._starts / self._busy_s if self._known else None

    @property
    def tokens_per_s(self) -> float | None:
        """Prompt tokens per second; None if too few started to say."""
        return self._tokens / self._busy_s if self._known else None

    @property
    def _known(self) -> bool:
        return self._starts >= LEAST_STARTS and self._busy_s > 0


class ArrivalRate:
    """Requests per second of one kind, forgotten over ``SPREAD_S``."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._count = 0.0

    def known(self, now_s: float) -> bool:
        """Whether there were enough of late to say."""
        return self.per_s(now_s) * SPREAD_S >= LEAST_STARTS

    def arrived(self, now_s: float) -> None:
        """One more."""
        self._count = self.per_s(now_s) * SPREAD_S + 1.0
        self._now_s = max(now_s, self._now_s)

    def per_s(self, now_s: float) -> float:
        """The rate now."""
        return self._count * math.exp(-max(now_s - self._now_s, 0.0) / SPREAD_S) / SPREAD_S


@dataclass(frozen=True, slots=True)
class EngineView:
    """What the last report says of the engine, as far as waiting depends on it.

    Args:
        free_slots: requests that may start next to those that run; negative: so many wait for one.
        full: whether every slot is taken: then one more starts when one ends.
        requests_per_s: what the replica carries inside the SLA; None if unknown.
        prompt_tokens_per_s: how fast prompts are computed with the decodes that run; None
            if no step model is known.
        step_s: of one step like those of late; 0 where unknown.
        computed_frac: share of the prompts' tokens that the prefix cache did not hold lately.
    """

    free_slots: int | None = None
    full: bool = False
    requests_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    step_s: float = 0.0
    computed_frac: float = 1.0


def engine_view(report: EngineReport, sla: Sla) -> EngineView:
    """A report, as far as waiting depends on it."""
    held = report.max_running if report.enforced else report.engine.max_num_seqs
    # With some waiting, a slot that the cap leaves is none: memory or the budget stands before it.
    free = -report.waiting if report.waiting else max(held - report.running, 0)
    per_s, step_s = prompt_rate(report, sla)
    carried, frac = report.capacity_per_s or None, report.lengths.computed_frac
    return EngineView(free, report.running >= held, carried, per_s, step_s, frac)


def prompt_rate(report: EngineReport, sla: Sla) -> tuple[float | None, float]:
    """Prompt tokens per second with the decodes that run, and such a step's seconds.

    A step takes as many prompt tokens as its budget and, under ``sla.itl_ms``, its time leave:
    (D - c0 - c1 B - c2 K) / c3 of them, in D seconds.
    """
    model = report.model
    if model is None:
        return None, 0.0
    decodes = report.decoding
    alone_s = max(model.predict_s(decodes, report.kv_used_tokens, 0, 0), 1e-6)
    most = max(report.engine.max_num_batched_tokens - report.decode_tokens, 1)
    chunk = float(most)
    if sla.itl_s is not None and model.c3 > 0 and report.enforced:
        chunk = min(max((sla.itl_s - alone_s) / model.c3, 0.0), chunk)
    if chunk < 1:  # no headroom with these decodes: as slow as it was measured, if it was
        return None, alone_s
    took_s = alone_s + model.c3 * chunk
    return chunk / took_s, took_s
