"""The prefill chunk under paced delivery: steps as long as the decodes' slack allows."""

import math

from controller.capacity import step_limit_s
from controller.models.online import prefill_room
from controller.models.pace import DeadlineSlack, Pace, Remaining
from controller.models.step_time import StepModel
from controller.policies.chunk import STARVED_STEPS, ChunkSizer, StepHistory
from controller.records import StepSample

# Decodes alone may take so much of ``Pace.allowance_s``, by which steps may exceed D until half of
# the TTFT is used up: the rest is for prompts.
DECODES_FRAC = 0.5
# Matrix products are computed in tiles: what a step takes rises in steps, and a total that is a
# whole number of tiles stands at the end of one. QoServe's totals (``benchmarks.baselines``).
TILE = 256


class PacedChunks(ChunkSizer):
    """Steps take D + x (``controller.models.pace``).

    What a step takes beyond its prediction is taken from the slack, which the next one sees, and
    the share of late tokens corrects what is planned to be late.

    Args:
        itl_s, percentile, ttft_s: as for ``Pace``.
        tiles: a decode is one token, and prompts are computed in parts of any size.
    """

    def __init__(
        self, itl_s: float, percentile: float, ttft_s: float, history: StepHistory, *, tiles: bool
    ) -> None:
        super().__init__(history)
        self._itl_s, self._tiles = itl_s, tiles
        self._pace = Pace(itl_s, percentile, ttft_s)
        self._extra_s = self._decodes_extra_s = 0.0
        self._starved_steps = 0  # for which there was no room for a prompt

    @property
    def target_s(self) -> float:
        """How long the next step may take, seconds."""
        return step_limit_s(self.history.model, self._itl_s, self._itl_s + self._extra_s)

    def look(self, slack: DeadlineSlack, remaining: Remaining | None) -> None:
        """Before each chunk: the slack, and how much their requests have yet to generate."""
        self._extra_s = self._pace.extra_s(slack, remaining) if len(slack.slack_s) else 0.0
        allowance_s = self._pace.allowance_s(remaining) if remaining else 0.0
        self._decodes_extra_s = DECODES_FRAC * max(allowance_s, 0.0)

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        """As for gaps, in whole tiles with the decodes where that leaves something.

        By gaps what is left of a step is lost; here it is slack for the next one. After
        ``STARVED_STEPS`` prompts get D beyond the decodes, and ``least`` at least; by gaps they get
        ``least``.
        """
        model = self.history.model
        room = prefill_room(model, decodes, kv, context, self.target_s)
        chunk, least = math.floor(min(max(room, 0), most)), min(least, most)
        self._starved_steps = 0 if chunk >= least else self._starved_steps + 1
        if self._overdue:
            longer_s = model.predict_s(decodes, kv, 0, 0) + self._itl_s
            room = prefill_room(model, decodes, kv, context, longer_s)
            return math.floor(min(max(room, least), most))
        whole = (decodes + chunk) // TILE * TILE - decodes
        return whole if self._tiles and least <= whole and chunk < most else chunk

    @property
    def _overdue(self) -> bool:
        return self._starved_steps >= STARVED_STEPS

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        predicted_s = self.history.observe(sample).step_s
        if sample.prefill_tokens:
            self._starved_steps = 0
        if applied and sample.late is not None and sample.decodes:
            self._pace.observe(sample.decodes, sample.late, sample.duration_s - predicted_s)

    def decode_targets(self, largest: int = 0) -> list[tuple[StepModel, float]]:
        # No more than all of them can bear for as long as they last.
        target_s = min(self.target_s, self._itl_s + self._decodes_extra_s)
        return [(self.history.model, math.inf if self._overdue else target_s)]
