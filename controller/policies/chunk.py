"""The prefill chunk that the SLA leaves a step beside its decodes."""

import math
from dataclasses import replace

from controller.capacity import IN_REACH, held_itl_s, kept_itl_s, out_of_reach
from controller.models.late_tokens import LateTokens
from controller.models.lookahead import Forecast, leading
from controller.models.margin import Margin
from controller.models.online import OnlineStepModel, guess, prefill_room
from controller.models.pace import Leads, Remaining
from controller.models.step_time import MIN_STEPS, StepModel
from controller.models.tail import Level, Tail
from controller.records import StepSample

AIMED_FRAC = 0.98  # a step predicted to take this much of the time it had was sized by the SLA
# Margin and stair leave at least this of what D has above the step of one decode. A quarter keeps
# the SLA as well; half of it, under noise of 5%, does not.
LEAST_ROOM_FRAC = 0.1
# Step times are staircases, and chunks that follow each other stand on one stair: the last five
# say how far the model is off there.
STAIR = 0.2
FADE = 0.99  # ... as long as prompts come: what they took says less with each step without one
# With a tail that is not known for certain, D is at least so many steps of one decode: the group's
# model may have that step a few percent longer than the replica's own.
STILL_IN_REACH = 1.05 * IN_REACH


class ChunkSizer:
    """Latency's part of ``adaptive``, for one engine.

    P = (D - margin - stair - c0 - c1 B - c2 K) / c3, solved with the quadratic part of attention.
    Margin and stair leave a tenth of what D has above one decode, or no request would start.
    Where D is out of reach at the percentile (``out_of_reach``) there is nothing to keep a margin
    from, and steps are held to D as predicted, or to two steps of one decode.

    Args:
        limit_s: D, seconds.
        percentile: of the gaps between tokens, this many % are to be within D.
        prefill_floor: the share of steps that compute prompts where D leaves them no room: after
            1 / ``prefill_floor`` steps without any, one takes up to D longer than its decodes.
        time: the step-time model, where several share one; None: its own.

    Attributes:
        steps: how many it has learned from.
        forced: whether the last chunk was given without room for it.
    """

    def __init__(
        self,
        limit_s: float,
        percentile: float,
        prefill_floor: float = 0.01,
        time: OnlineStepModel | None = None,
    ) -> None:
        self._sla_s = self._limit_s = limit_s
        self._time = OnlineStepModel(guess(limit_s)) if time is None else time
        self._margin = Margin(limit_s, percentile)
        self._tail, self._level = Tail(percentile), Level()
        self._late = LateTokens(percentile)
        self._stair_s = 0.0  # what steps with a prompt take beyond the model
        self._floor = prefill_floor
        self._starved = 0  # steps without a prompt token, for which there was no room
        self.forced = False
        self.steps = 0

    @property
    def model(self) -> StepModel:
        """The step-time model it goes by now."""
        return self._time.model

    @property
    def published(self) -> StepModel:
        """The same for cap and capacity, which do not wait until the tail is known for certain."""
        model, soon = self.model, self._tail.soon
        if self._tail.frac is not None or soon is None or model.tail_frac:
            return model
        # Nothing is given up for what one window has shown: it leaves D in reach.
        least_s = STILL_IN_REACH * model.one_decode_s
        most = self._limit_s / least_s - 1 if least_s > 0 else soon
        return replace(model, tail_frac=max(min(soon, most), 0.0), tail_known=False)

    @property
    def until_s(self) -> float:
        """What the model is to predict for a step that is filled up, at most; seconds."""
        model, limit_s = self.model, self._limit_s
        if out_of_reach(model, limit_s):
            return kept_itl_s(model, limit_s)
        alone_s = model.one_decode_s
        least_s = alone_s + LEAST_ROOM_FRAC * (limit_s - alone_s)
        return max(self._wanted_s, least_s)

    @property
    def _wanted_s(self) -> float:
        """How long a step may be, before what every step has to be given; seconds."""
        return self._limit_s - self._margin.seconds - self._stair_s

    @property
    def decodes_until_s(self) -> float:
        """The same for a step of decodes alone."""
        return self.until_s

    def hold_to(self, itl_frac: float) -> None:
        """Keep this share of D; all of it where no batch would keep the share."""
        self._limit_s = self._margin.limit_s = held_itl_s(self.model, self._sla_s, itl_frac)

    def receive(self, model: StepModel | None) -> None:
        """The group's step-time model; None where there is none yet."""
        if model is not None and model != self._time.prior:
            self._time.believe(model)

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        """Learn from a step.

        Args:
            applied: whether its chunk was sized here; else margin and late tokens are not its.
        """
        expected = self.expects(sample)
        counted_s = self._time.learn(*sample.features, sample.duration_s, expected[0])
        self.judge(sample, expected, counted_s, sample.decodes, applied=applied)

    def expects(self, sample: StepSample) -> tuple[float, float]:
        """What a step was predicted to take, and what it might have; before it is learned from."""
        return self.model.predict_s(*sample.features), self.until_s

    def judge(
        self,
        sample: StepSample,
        expected: tuple[float, float],
        counted_s: float,
        tokens: int,
        *,
        applied: bool,
    ) -> None:
        """Learn from a step what the SLA needs beside the model.

        Args:
            expected: as ``expects`` had it.
            counted_s: what the model has learned it as.
            tokens: of decodes, that came under this SLA.
        """
        predicted_s, until_s = expected
        # A step that was longer from the start is judged as if it had been filled up to D only, or
        # a margin larger than the room would never be unlearned.
        over_s = max(predicted_s - until_s, 0.0)
        aimed = predicted_s >= AIMED_FRAC * until_s
        if sample.prefill_tokens:
            self._starved = 0
        self.steps += 1
        if not tokens:
            return
        if applied:
            self._late.observe(tokens, late=sample.duration_s > self._limit_s)
        if not sample.prefill_tokens:
            self._stair_s *= FADE
        elif predicted_s <= until_s / AIMED_FRAC:  # a far longer one stands on another stair
            predicted_s += self._stair_s
            self._stair_s += STAIR * (counted_s - predicted_s)
        judged = self.steps > MIN_STEPS and predicted_s > 0  # before, it is a guess
        if judged and counted_s == sample.duration_s:
            error = counted_s / predicted_s - 1
            self._tail.add(error, self._level.of(error, jumped=self._time.jumped))
            self._time.tail_frac = self._tail.frac
            if self._tail.most is not None:
                self._margin.bound(self._tail.most)
        if aimed and applied and not out_of_reach(self.model, self._limit_s):
            self._margin.observe(sample.duration_s - over_s, predicted_s - over_s, tokens)

    def resumed(self, gap_s: float) -> None:
        """Learn from the gap between two tokens of a request that was preempted between them."""
        if gap_s > self._limit_s:
            self._margin.late_token()
            self._late.late_token()

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        """Prompt tokens of the next step, from 0 to ``most``.

        Args:
            decodes, kv: requests that decode, and their KV tokens.
            context: tokens of the first prompt of the queue that are computed already.
            least: fewer tokens get no prompt any further.
        """
        room = prefill_room(self.model, decodes, kv, context, self.until_s)
        chunk, least = math.floor(min(max(room, 0), most)), min(least, most)
        self._starved = 0 if chunk >= least else self._starved + 1
        self.forced = self._starved * self._floor >= 1
        if self.forced:
            # Whether it was taken is seen a step later where steps overlap.
            self._starved -= 2
            decodes_s = self.model.predict_s(decodes, kv, 0, 0)
            longer_s = kept_itl_s(self.model, self._limit_s)
            room = prefill_room(self.model, decodes, kv, context, decodes_s + longer_s)
            chunk = math.floor(min(max(room, least), most))
        return chunk

    def may_be_late(self, decodes: int) -> bool:
        """Whether the percentile leaves room for a step in which all that decode are late."""
        reachable = self.steps > MIN_STEPS and not out_of_reach(self.model, self._limit_s)
        return reachable and not self.forced and self._late.allows(decodes)

    def look(self, leads: Leads | None, remaining: Remaining | None) -> None:
        """Before each chunk: what matters where delivery is paced (``controller.models.pace``)."""

    def late_step(self, decodes: int) -> None:
        """The next step is given more prompt tokens than the SLA has time for."""
        self._late.grant(decodes)

    def in_time(self, decodes: int, kv: int) -> bool:
        """Whether a step of decodes alone is within the SLA, or need not be (``forced``)."""
        return self.forced or self.model.predict_s(decodes, kv, 0, 0) <= self.decodes_until_s

    def fitting(self, together: Forecast) -> int:
        """How many candidates may start so that at no horizon the decodes alone break the SLA.

        All of them for a chunk that is given without room.
        """
        if self.forced:
            return len(together.alive)
        model = self.model
        step_s = model.c0 + model.c1 * together.alive + model.c2 * together.reads
        return leading(step_s.max(axis=1) <= self.decodes_until_s)
