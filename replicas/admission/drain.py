"""The rate at which waiting requests start: measured, or by the step model. Pure."""

import math
from dataclasses import dataclass

from controller.config import Sla
from controller.records import EngineReport

SPREAD_S = 5.0  # older starts count for less than 1/e
LEAST_STARTS = 3.0  # with fewer the rate is unknown
LEAST_SHARE = 0.02  # least share of the drain for a class behind others


class DrainRate:
    """Starts and prompt tokens per second of time in which some request waited.

    The clock of an idle replica stands still: its load says nothing of its capacity.
    """

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._busy_s = self._starts = self._tokens = 0.0

    def pass_time(self, now_s: float, *, waiting: bool) -> None:
        """Let time pass, in which some request waited or none did."""
        passed_s = max(now_s - self._now_s, 0.0)
        self._now_s = max(now_s, self._now_s)
        if waiting and passed_s:
            kept = math.exp(-passed_s / SPREAD_S)
            self._busy_s = self._busy_s * kept + SPREAD_S * (1 - kept)
            self._starts *= kept
            self._tokens *= kept

    def started(self, prompt_tokens: int) -> None:
        """A waiting request got its first token."""
        self._starts += 1
        self._tokens += prompt_tokens

    @property
    def requests_per_s(self) -> float | None:
        """Starts per second; None if there were too few."""
        return self._starts / self._busy_s if self._known else None

    @property
    def tokens_per_s(self) -> float | None:
        """Prompt tokens per second; None if there were too few starts."""
        return self._tokens / self._busy_s if self._known else None

    @property
    def _known(self) -> bool:
        return self._starts >= LEAST_STARTS and self._busy_s > 0


class ArrivalRate:
    """Requests per second of one kind, fading over ``SPREAD_S``."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._count = 0.0

    def known(self, now_s: float) -> bool:
        """Whether there were enough lately."""
        return self.per_s(now_s) * SPREAD_S >= LEAST_STARTS

    def arrived(self, now_s: float) -> None:
        """Count an arrival."""
        self._count = self.per_s(now_s) * SPREAD_S + 1.0
        self._now_s = max(now_s, self._now_s)

    def per_s(self, now_s: float) -> float:
        """The rate now."""
        return self._count * math.exp(-max(now_s - self._now_s, 0.0) / SPREAD_S) / SPREAD_S


@dataclass(frozen=True, slots=True)
class EngineView:
    """The values of the last report that waiting depends on.

    Args:
        free_slots: requests that may start now; negative: number that wait for a slot.
        full: whether every slot is taken, so that a request starts only if another ends.
        requests_per_s: capacity of the replica inside the SLA; None if unknown.
        prompt_tokens_per_s: rate of prompt tokens with the present decodes; None without a step
            model.
        step_s: duration of a recent step; 0 if unknown.
        computed_frac: share of prompt tokens that were no prefix hits lately.
    """

    free_slots: int | None = None
    full: bool = False
    requests_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    step_s: float = 0.0
    computed_frac: float = 1.0


def engine_view(report: EngineReport, sla: Sla) -> EngineView:
    """The values of a report that waiting depends on."""
    held = report.max_running if report.enforced else report.engine.max_num_seqs
    # If requests wait, a slot below the cap is not free: memory or the budget blocks it.
    free = -report.waiting if report.waiting else max(held - report.running, 0)
    per_s, step_s = prompt_rate(report, sla)
    carried, frac = report.capacity_per_s or None, report.lengths.computed_frac
    return EngineView(free, report.running >= held, carried, per_s, step_s, frac)


def prompt_rate(report: EngineReport, sla: Sla) -> tuple[float | None, float]:
    """Prompt tokens per second with the present decodes, and the duration of such a step.

    A step takes the prompt tokens that its budget and, with ``sla.itl_ms``, its time leave:
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
    if chunk < 1:  # no headroom with these decodes: the measured rate, if any
        return None, alone_s
    took_s = alone_s + model.c3 * chunk
    return chunk / took_s, took_s
