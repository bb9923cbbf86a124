"""The prefill chunk under paced delivery: steps as long as the leads of those that decode allow."""

import math

from controller.capacity import step_limit_s
from controller.models.lookahead import Forecast, leading
from controller.models.online import prefill_room
from controller.models.pace import DeadlineSlack, Pace, Remaining
from controller.models.step_time import StepModel
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample

# Decodes alone may take so much of the steady pace beyond D: the rest is for prompts.
DECODES_FRAC = 0.5
# Matrix products are computed in tiles: what a step takes rises in steps, and a total that is a
# whole number of tiles stands at the end of one. QoServe's totals (``benchmarks.baselines``).
TILE = 256


class PacedChunks(ChunkSizer):
    """As ``ChunkSizer``, with steps of D + x (``controller.models.pace``) in the place of D.

    What a step takes beyond its prediction is taken from the leads, which the next one sees, and
    the share of late tokens corrects what is planned to be late.

    Args:
        tiles: a decode is one token, and prompts are computed in parts of any size.
    """

    def __init__(
        self,
        limit_s: float,
        percentile: float,
        ttft_s: float = 0.0,
        *,
        tiles: bool = True,
    ) -> None:
        super().__init__(limit_s, percentile)
        self._tiles = tiles
        self._pace = Pace(limit_s, percentile, ttft_s)
        self._extra_s = self._decodes_extra_s = 0.0

    @property
    def until_s(self) -> float:
        return step_limit_s(self.model, self._limit_s, self._limit_s + self._extra_s)

    @property
    def late_anyway(self) -> float | None:
        return None  # no gap is late by itself

    def decodes_until_s(self, largest: int = 0, model: StepModel | None = None) -> float:
        # No more than all of them can bear for as long as they last.
        return min(self.until_s, self._limit_s + self._decodes_extra_s)

    def set_target_frac(self, itl_frac: float) -> None:
        """Tokens have leads, which what they wait on their way out is short beside."""

    def look(self, leads: DeadlineSlack | None, remaining: Remaining | None) -> None:
        known = leads is not None and len(leads.slack_s) > 0
        self._extra_s = self._pace.extra_s(leads, remaining) if leads and known else 0.0
        steady_s = self._pace.steady_s(remaining) if remaining else 0.0
        self._decodes_extra_s = DECODES_FRAC * max(steady_s, 0.0)

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        """As for gaps, in whole tiles with the decodes where that leaves something.

        By gaps what is left of a step is lost; here it is a lead for the next one.
        """
        room = prefill_room(self.model, decodes, kv, context, self.until_s)
        chunk, least = math.floor(min(max(room, 0), most)), min(least, most)
        self._starved_steps = 0 if chunk >= least else self._starved_steps + 1
        if self._overdue:
            longer_s = self.model.predict_s(decodes, kv, 0, 0) + self._limit_s
            room = prefill_room(self.model, decodes, kv, context, longer_s)
            return math.floor(min(max(room, least), most))
        whole = (decodes + chunk) // TILE * TILE - decodes
        return whole if self._tiles and least <= whole and chunk < most else chunk

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        error_s = sample.duration_s - self.model.predict_s(*sample.features)
        self._time.learn(*sample.features, sample.duration_s)
        self._see_kv(sample)
        if sample.prefill_tokens:
            self._starved_steps = 0
        self.steps += 1
        if applied and sample.late is not None and sample.decodes:
            self._pace.observe(sample.decodes, sample.late, error_s)

    def in_time(self, decodes: int, kv: int, largest: int = 0) -> bool:
        return self._overdue or super().in_time(decodes, kv, largest)

    def fitting(self, together: Forecast, largest: int = 0) -> int:
        if self._overdue:
            return len(together.alive)
        step_s = self._decodes_s(self.model, together.alive, together.reads)
        return leading(step_s.max(axis=1) <= self.decodes_until_s(largest))

    def resumed(self, gap_s: float) -> None:
        """Its lead, when it is back, says what the gap has cost."""
