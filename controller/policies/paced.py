"""The prefill chunk under paced delivery: steps as long as the leads of those that decode allow."""

from controller.models.pace import Leads, Pace, Remaining
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample


class PacedChunks(ChunkSizer):
    """As ``ChunkSizer``, with steps of D + x (``controller.models.pace``) in the place of D.

    There is no margin: what a step takes beyond its prediction is taken from the leads, which the
    next one sees, and the share of late tokens corrects what is planned to be late.
    """

    def __init__(
        self, limit_s: float, percentile: float, prefill_floor: float = 0.01, ttft_s: float = 0.0
    ) -> None:
        super().__init__(limit_s, percentile, prefill_floor)
        self._pace = Pace(limit_s, percentile, ttft_s)
        self._extra_s = 0.0

    @property
    def _wanted_s(self) -> float:
        return self._limit_s + self._extra_s

    @property
    def decodes_until_s(self) -> float:
        # No more than D: that is what they take for as long as they last.
        return min(self.until_s, self._limit_s)

    def hold_to(self, itl_frac: float) -> None:
        """Tokens have leads, which what they wait on their way out is short beside."""

    def look(self, leads: Leads | None, remaining: Remaining | None) -> None:
        known = leads is not None and len(leads.lead_s) > 0
        self._extra_s = self._pace.extra_s(leads, remaining) if leads and known else 0.0

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        error_s = sample.duration_s - self.model.predict_s(*sample.features)
        self._time.learn(*sample.features, sample.duration_s)
        if sample.prefill_tokens:
            self._starved = 0
        self.steps += 1
        if applied and sample.late is not None and sample.decodes:
            self._pace.observe(sample.decodes, sample.late, error_s)

    def resumed(self, gap_s: float) -> None:
        """Its lead, when it is back, says what the gap has cost."""

    def may_be_late(self, decodes: int) -> bool:
        """No step is longer than the leads allow."""
        return False
