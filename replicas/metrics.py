"""A replica's batching in Ray's Prometheus export; Ray Serve adds application and replica tags."""

from typing import get_args

from ray.serve.metrics import Counter, Gauge

from controller.models.histogram import LogHistogram
from controller.records import Mode, Reason, ReplicaReport
from replicas.admission.admission import Admission

PERCENTILES = (50, 90, 99)


class ReplicaMetrics:
    """Gauges and counters fed by the replica's own reports."""

    def __init__(self) -> None:
        self._max_running = Gauge("brimful_max_running", "Cap on running requests.")
        self._token_budget = Gauge("brimful_token_budget", "Token budget of a step.")
        self._running = Gauge("brimful_running", "Requests running in the engine.")
        self._waiting = Gauge("brimful_waiting", "Requests waiting in the engine.")
        self._kv = Gauge("brimful_kv_usage_ratio", "Share of KV memory in use, 0 to 1.")
        self._reason = Gauge(
            "brimful_limit_reason", "1 for what set the cap, 0 for the rest.", ("reason",)
        )
        self._mode = Gauge(
            "brimful_control_mode", "1 for who decides: leased, fallback, local.", ("mode",)
        )
        self._enforced = Gauge(
            "brimful_enforced", "1 where limits are applied, 0 where they are only computed."
        )
        self._itl = Gauge(
            "brimful_itl_seconds",
            "Time between tokens since the last export, by percentile.",
            ("percentile",),
        )
        self._ttft = Gauge(
            "brimful_ttft_seconds",
            "Time to first token since the last export, by percentile.",
            ("percentile",),
        )
        self._preemptions = Counter("brimful_preemptions", "Requests that lost their KV blocks.")
        self._age = Gauge(
            "brimful_report_age_seconds",
            "Age of the report that these numbers are from; 0 where the last exchange succeeded.",
        )
        self._last: ReplicaReport | None = None

    def publish(self, report: ReplicaReport) -> None:
        """Export one report; counters and percentiles by their difference to the one before."""
        last = self._last
        self._last = report
        self._age.set(0.0)
        self._max_running.set(report.max_running)
        self._token_budget.set(report.token_budget)
        self._running.set(report.running)
        self._waiting.set(report.waiting)
        self._kv.set(report.kv_frac)
        for reason in get_args(Reason):
            self._reason.set(float(reason == report.reason), {"reason": reason})
        for mode in get_args(Mode):
            self._mode.set(float(mode == report.mode), {"mode": mode})
        self._enforced.set(float(report.enforced))
        new = report.preemptions - (last.preemptions if last else 0)
        if new > 0:
            self._preemptions.inc(new)
        self._percentiles(self._itl, report.itl, last.itl if last else LogHistogram())
        self._percentiles(self._ttft, report.ttft, last.ttft if last else LogHistogram())

    def publish_age(self, age_s: float) -> None:
        """An exchange failed: what was published is so old, and stands."""
        self._age.set(age_s)

    @staticmethod
    def _percentiles(gauge: Gauge, now: LogHistogram, before: LogHistogram) -> None:
        recent = now.since(before)
        for percent in PERCENTILES:
            value = recent.percentile_s(percent)
            if value is not None:  # nothing new: the last value stands
                gauge.set(value, {"percentile": str(percent)})


class AdmissionMetrics:
    """What admission did, by class."""

    def __init__(self) -> None:
        one = ("class",)
        self._counters = {
            "let_in": Counter("brimful_let_in", "Requests that were let in.", one),
            "started": Counter("brimful_started", "Requests that got a first token.", one),
            "late": Counter("brimful_late", "... after their deadline, or never in time.", one),
            "refused": Counter("brimful_refused", "Requests refused.", ("class", "reason")),
        }
        self._queued = Gauge("brimful_without_first_token", "Requests let in that wait for one.")
        self._error = Gauge(
            "brimful_wait_error_seconds",
            "Predicted wait against the real one since the last export, by percentile.",
            ("percentile",),
        )
        self._last: dict[str, dict[tuple[str, ...], int]] = {}
        self._errors = LogHistogram()

    def publish(self, admission: Admission) -> None:
        """Export the difference to the last call."""
        counts = admission.counts
        self._queued.set(admission.waiting.requests)
        now: dict[str, dict[tuple[str, ...], int]] = {
            "let_in": {(name,): n for name, n in counts.let_in.items()},
            "started": {(name,): n for name, n in counts.started.items()},
            "late": {(name,): n for name, n in counts.late.items()},
            "refused": {(name, reason): n for (name, reason), n in counts.refused.items()},
        }
        for what, known in now.items():
            before = self._last.get(what, {})
            for tags, n in known.items():
                if (new := n - before.get(tags, 0)) > 0:
                    named = dict(zip(("class", "reason"), tags, strict=False))
                    self._counters[what].inc(new, named)
        self._last = now
        errors = counts.error.snapshot()
        ReplicaMetrics._percentiles(self._error, errors, self._errors)
        self._errors = errors
