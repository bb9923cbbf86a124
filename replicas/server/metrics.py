"""A replica's metrics in Ray's Prometheus export; Ray Serve adds application and replica tags."""

from collections.abc import Iterable

from ray.serve.metrics import Counter, Gauge

from controller import metrics
from controller.config import BatchingConfig
from controller.metrics import METRICS, Metric
from controller.records import EngineReport
from replicas.admission.admission import Admission
from replicas.server.metric_values import (
    Labels,
    StallCounter,
    Value,
    admission_totals,
    gauges,
    totals,
)


class Exported:
    """These metrics in Ray's export; counters by their difference since the last call."""

    def __init__(self, known: Iterable[Metric]) -> None:
        known = list(known)
        self._gauges = {one: Gauge(*one.args) for one in known if one.kind == "gauge"}
        self._counters = {one: Counter(*one.args) for one in known if one.kind == "counter"}
        self._last: dict[tuple[Metric, Labels], float] = {}

    def set(self, values: Iterable[Value]) -> None:
        for metric, labels, value in values:
            self._gauges[metric].set(float(value), _named(metric, labels))

    def count(self, now: Iterable[Value]) -> None:
        for metric, labels, total in now:
            new = total - self._last.get((metric, labels), 0)
            self._last[metric, labels] = total
            if new > 0:
                self._counters[metric].inc(new, _named(metric, labels))


def _named(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))


class ReplicaMetrics:
    """Metrics from the replica's own reports, and of its admission."""

    def __init__(self) -> None:
        ours = (one for one in METRICS if one.by == "replica" and one is not metrics.DOOR)
        self._exported, self._stalls = Exported(ours), StallCounter()

    def publish(self, report: EngineReport, config: BatchingConfig) -> None:
        """Export one report, with the configuration of its time."""
        self._exported.set(gauges(report, config))
        self._exported.count((*totals(report), *self._stalls.totals(report, config.sla)))

    def publish_age(self, age_s: float) -> None:
        """A sync with the engine failed: the published values are this old."""
        self._exported.set([(metrics.REPORT_AGE, (), age_s)])

    def publish_controller_age(self, age_s: float) -> None:
        """Seconds since the batch controller last answered."""
        self._exported.set([(metrics.CONTROLLER_AGE, (), age_s)])

    def publish_admission(self, admission: Admission) -> None:
        """Export its counts by class."""
        self._exported.set([(metrics.QUEUED, (), admission.waiting.requests)])
        self._exported.count(admission_totals(admission))


class DoorMetrics:
    """The auth middleware's counts: by names of keys, never by the keys."""

    def __init__(self) -> None:
        self._requests = Counter(*metrics.DOOR.args)

    def count(self, key: str, outcome: str) -> None:
        """Count a request."""
        self._requests.inc(1, {"key": key, "outcome": outcome})
