"""Times between tokens and to first tokens since an engine started, and how many were late."""

from controller.config import Sla
from controller.models.histogram import HistogramCounter


class Latencies:
    """Latencies of one engine.

    Attributes:
        itl, ttft: histograms, seconds.
        late_itl, late_ttft: how many were late by the SLA of their time.
    """

    def __init__(self) -> None:
        self.itl, self.ttft = HistogramCounter(), HistogramCounter()
        self.late_itl = self.late_ttft = 0

    def gap(self, sla: Sla, itl_s: float, tokens: int, late: int | None = None) -> None:
        """Count tokens that came ``itl_s`` after the one before; ``late``: how many, if known.

        Late ones are counted exactly: steps end just below the SLA, and a bin of the histogram
        would put half of them on the wrong side.
        """
        self.itl.add(itl_s, tokens)
        if late is not None:
            self.late_itl += late
        elif sla.itl_s is not None and itl_s > sla.itl_s:
            self.late_itl += tokens

    def first_token(self, ttft_s: float, agreed_s: float) -> None:
        """Count a first token, and whether it came later than agreed (seconds)."""
        self.ttft.add(max(ttft_s, 0.0))
        self.late_ttft += ttft_s > agreed_s
