"""An engine's batching in vLLM's own Prometheus export: ``docs/metrics.md`` without Ray."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from controller.metrics import LABELS, Metric
from replicas.server.metric_values import Labels, Value


class Collector:
    """A collector for a registry of ``prometheus_client``.

    Args:
        named: the values of the labels that Ray Serve puts on a replica's metrics.

    Attributes:
        values: exported until the next ones are set.
    """

    def __init__(self, named: Labels) -> None:
        self._named = named
        self.values: tuple[Value, ...] = ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """One family for each metric that has a value."""
        families: dict[Metric, GaugeMetricFamily | CounterMetricFamily] = {}
        for metric, labels, value in self.values:
            if metric not in families:
                made = GaugeMetricFamily if metric.kind == "gauge" else CounterMetricFamily
                names = (*LABELS["replica"], *metric.labels)
                families[metric] = made(metric.name, metric.about, labels=names)
            families[metric].add_metric((*self._named, *labels), float(value))
        yield from families.values()
