"""A report as metrics: the gauges' values and the counters' totals. Pure."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import accumulate
from typing import get_args

from controller import metrics
from controller.config import BatchingConfig, Sla
from controller.metrics import Metric
from controller.models.histogram import LogHistogram, lower_edge_s
from controller.records import EngineReport, Mode, Reason
from replicas.admission.admission import Admission

# Every fourth bin of a ``LogHistogram``, so that its counts are exact: 1 ms to 63 s.
EDGES = range(20, 120, 4)

Labels = tuple[str, ...]
Value = tuple[Metric, Labels, float]


def gauges(report: EngineReport, config: BatchingConfig) -> Iterator[Value]:
    """Present values; unknown ones, and those of steps without a step, are left out."""
    yield metrics.MAX_RUNNING, (), report.max_running
    yield metrics.MIN_RUNNING, (), config.max_running.min
    for reason in get_args(Reason):
        yield metrics.LIMIT_REASON, (reason,), reason == report.reason
    yield metrics.TOKEN_BUDGET, (), report.token_budget
    yield metrics.RUNNING, (), report.running
    yield metrics.WAITING, (), report.waiting
    yield metrics.KV_USAGE, (), report.kv_frac
    if report.capacity_per_s is not None:
        yield metrics.CAPACITY, (), report.capacity_per_s
    yield metrics.ARRIVAL_RATE, (), report.arrival_rate_per_s
    yield metrics.OUT_OF_REACH, (), report.sla_out_of_reach
    for latency, limit_ms in (("itl", config.sla.itl_ms), ("ttft", config.sla.ttft_ms)):
        if limit_ms is not None:
            yield metrics.SLA, (latency,), limit_ms / 1000
    yield metrics.SLA_HELD, (), report.itl_frac
    if report.late_anyway is not None:
        yield metrics.LATE_ANYWAY, (), report.late_anyway
    yield metrics.SLA_TARGET, (), config.sla.percentile / 100
    for mode in get_args(Mode):
        yield metrics.MODE, (mode,), mode == report.mode
    yield metrics.ENFORCED, (), report.enforced
    yield metrics.CONFIG_REFUSED, (), report.config_refused is not None
    yield metrics.REPORT_AGE, (), 0.0
    if (longest_s := report.itl.longest_s) is not None:
        yield metrics.LONGEST_ITL, (), longest_s
    yield from _steps(report)


def _steps(report: EngineReport) -> Iterator[Value]:
    recent, model = report.recent, report.model
    if not recent.steps:
        return
    yield metrics.STEP, (), recent.itl_s
    if model is not None:
        prefill = max(recent.tokens - recent.decodes * report.engine.tokens_per_decode, 0.0)
        held = recent.decodes * report.lengths.mean_held
        yield metrics.PREDICTED_STEP, (), model.predict_s(recent.decodes, held, prefill, 0.0)
        yield metrics.STEP_ERROR, (), model.sigma_s


def totals(report: EngineReport) -> Iterator[Value]:
    """Counts since the engine started."""
    yield metrics.TOKENS, (), report.itl.n
    yield metrics.LATE_TOKENS, (), report.late_itl
    yield metrics.FIRST_TOKENS, (), report.ttft.n
    yield metrics.LATE_FIRST_TOKENS, (), report.late_ttft
    yield from _buckets(metrics.ITL, report.itl)
    yield from _buckets(metrics.TTFT, report.ttft)
    yield metrics.ARRIVALS, (), report.arrivals
    yield metrics.FINISHED, (), report.finished
    yield metrics.PREEMPTIONS, (), report.preemptions
    yield metrics.BUSY, (), report.busy_s
    yield metrics.OWN_ERRORS, (), report.own_errors
    for bound_by, steps in asdict(report.bound_steps).items():
        yield metrics.STEPS, (bound_by,), steps


class StallCounter:
    """Counts stalls by the SLA at their time: a new SLA recounts no old gap."""

    def __init__(self) -> None:
        self._counted, self._stalls = LogHistogram(), 0

    def totals(self, report: EngineReport, sla: Sla) -> Iterator[Value]:
        """Stalls since the engine started; nothing without ``itl_ms``."""
        if sla.stall_s is not None:
            self._stalls += report.itl.since(self._counted).above(sla.stall_s)
            yield metrics.STALLS, (), self._stalls
        self._counted = report.itl


def admission_totals(admission: Admission) -> Iterator[Value]:
    """Counts of admission since the replica started."""
    counts = admission.counts
    for metric, by_class in (
        (metrics.LET_IN, counts.let_in),
        (metrics.STARTED, counts.started),
        (metrics.LATE, counts.late),
    ):
        for name, n in by_class.items():
            yield metric, (name,), n
    for named, n in counts.refused.items():
        yield metrics.REFUSED, named, n
    yield from _buckets(metrics.WAIT_ERROR, counts.error.snapshot())


def _buckets(metric: Metric, histogram: LogHistogram) -> Iterator[Value]:
    up_to = list(accumulate(histogram.counts))
    for edge in EDGES:
        yield metric, (f"{lower_edge_s(edge):.6g}",), up_to[edge - 1]
    yield metric, ("+Inf",), up_to[-1]
