"""The prefill chunk under paced delivery: steps as long as the leads of those that decode allow."""

from controller.models.pace import Leads, Pace, Remaining
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample

# Decodes alone may take so much of the steady pace beyond D: the rest is for prompts.
DECODES_FRAC = 0.5
# Matrix products are computed in tiles: what a step takes rises in stairs, and a total that is a
# whole number of tiles stands at the end of one. QoServe's totals (``benchmarks.baselines``).
TILE = 256


class PacedChunks(ChunkSizer):
    """As ``ChunkSizer``, with steps of D + x (``controller.models.pace``) in the place of D.

    There is no margin: what a step takes beyond its prediction is taken from the leads, which the
    next one sees, and the share of late tokens corrects what is planned to be late.

    Args:
        tiles: a decode is one token, and prompts are computed in parts of any size.
    """

    def __init__(
        self,
        limit_s: float,
        percentile: float,
        prefill_floor: float = 0.01,
        ttft_s: float = 0.0,
        *,
        tiles: bool = True,
    ) -> None:
        super().__init__(limit_s, percentile, prefill_floor)
        self._tiles = tiles
        self._pace = Pace(limit_s, percentile, ttft_s)
        self._extra_s = self._decodes_extra_s = 0.0

    @property
    def _wanted_s(self) -> float:
        return self._limit_s + self._extra_s

    @property
    def decodes_until_s(self) -> float:
        # No more than all of them can bear for as long as they last.
        return min(self.until_s, self._limit_s + self._decodes_extra_s)

    def hold_to(self, itl_frac: float) -> None:
        """Tokens have leads, which what they wait on their way out is short beside."""

    def look(self, leads: Leads | None, remaining: Remaining | None) -> None:
        known = leads is not None and len(leads.lead_s) > 0
        self._extra_s = self._pace.extra_s(leads, remaining) if leads and known else 0.0
        steady_s = self._pace.steady_s(remaining) if remaining else 0.0
        self._decodes_extra_s = DECODES_FRAC * max(steady_s, 0.0)

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        """As for gaps, in whole tiles with the decodes where that leaves something.

        By gaps what is left of a step is lost; here it is a lead for the next one.
        """
        chunk = super().chunk(decodes, kv, context, least=least, most=most)
        whole = (decodes + chunk) // TILE * TILE - decodes
        fits = self._tiles and least <= whole and chunk < most and not self.forced
        return whole if fits else chunk

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
