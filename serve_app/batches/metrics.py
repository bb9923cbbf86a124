"""State of batches, in Ray's Prometheus export; Ray Serve adds application and replica tags."""

from controller.metrics import METRICS
from replicas.server.metrics import Exported
from serve_app.batches.runner import Figures


class BatchMetrics:
    """Exports the runner's figures, a few times a second."""

    def __init__(self) -> None:
        self._exported = Exported(one for one in METRICS if one.by == "batches")

    def publish(self, figures: Figures) -> None:
        """Export it."""
        self._exported.set(figures.now)
        self._exported.count(figures.totals)
