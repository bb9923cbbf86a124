"""The prefill chunk that the SLA leaves a step beside its decodes."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controller.capacity import step_limit_s
from controller.models.demand import Demand
from controller.models.lookahead import SHARED_DEVIATIONS, Forecast, leading
from controller.models.online import OnlineStepModel, guess, prefill_room
from controller.models.pace import DeadlineSlack, Remaining
from controller.models.step_target import REFRESH_STEPS, StepTarget
from controller.models.step_time import StepModel
from controller.records import StepSample

Floats = NDArray[np.float64]

STARVED_STEPS = 100  # one late step in so many is what a percentile of 99 allows


class ChunkSizer:
    """Latency's part of ``adaptive``, for one engine.

    Args:
        limit_s: D, seconds.
        percentile: of the gaps between tokens, this many % are to be within D.
        time, demand: where several sizers share them; None: its own.

    Attributes:
        steps: how many it has learned from.
    """

    def __init__(
        self,
        limit_s: float,
        percentile: float,
        time: OnlineStepModel | None = None,
        demand: Demand | None = None,
    ) -> None:
        self._sla_s = limit_s
        self._time = OnlineStepModel(guess(limit_s)) if time is None else time
        self._demand = Demand() if demand is None else demand
        self._target = StepTarget(limit_s, percentile, self._demand)
        self._full_s: float | None = None  # of the target; None: not asked since it was found anew
        self._starved_steps = 0  # for which there was no room for a prompt
        self._kv_read_frac, self._most_kv = 0.0, 0
        self._last_s, self._shortest_s = math.inf, math.inf
        self._most_read_s = math.inf  # a token of KV takes no more: none of the steps did
        self.steps = 0

    @property
    def model(self) -> StepModel:
        """The step-time model it goes by now."""
        return self._time.model

    @property
    def published(self) -> StepModel:
        """The same, with what steps leave of D where demand is as large as can be carried."""
        if self._full_s is None:
            self._full_s = self._target.full_s
        return replace(self.model, tail_frac=max(self._limit_s / self._full_s - 1, 0.0))

    @property
    def late_anyway(self) -> float | None:
        """The share of tokens that no chunk makes late; None where nothing tells."""
        return self._target.not_caused

    @property
    def _limit_s(self) -> float:
        return self._target.limit_s

    @property
    def until_s(self) -> float:
        """The step-time target for the mean batch, seconds."""
        return self._target.target_s

    def captured(self, graph_tokens: int) -> None:
        """The engine has CUDA graphs for steps of up to so many tokens; 0: for none."""
        self._time.captured(graph_tokens)

    def reads_kv(self, kv_read_frac: float) -> None:
        """The engine reads so much memory for a token of KV, over what it reads without any."""
        self._kv_read_frac = kv_read_frac

    def set_target_frac(self, itl_frac: float) -> None:
        """Keep this share of D."""
        self._target.set_target_frac(itl_frac * self._sla_s)
        self._full_s = None

    def receive(self, model: StepModel | None) -> None:
        """The group's step-time model; None where there is none yet."""
        if model is not None and model != self._time.prior:
            self._time.set_prior(model)

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        """Learn from a step.

        Args:
            applied: whether its chunk was sized here.
        """
        expected = self.expects(sample)
        self._see_kv(sample)
        self._demand.observe(
            sample.decodes, sample.prefill_tokens, sample.duration_s, sample.started
        )
        changed = self._time.learn(*sample.features, sample.duration_s)
        self.judge(sample, expected, sample.decodes, changed=changed, applied=applied)

    def _see_kv(self, sample: StepSample) -> None:
        self._most_kv = max(self._most_kv, sample.kv_tokens)
        # Of two in a row the longer: the output after a late one comes early.
        both_s = max(sample.duration_s, self._last_s)
        self._last_s, self._shortest_s = sample.duration_s, min(self._shortest_s, both_s)
        if sample.kv_tokens:
            self._most_read_s = min(self._most_read_s, both_s / sample.kv_tokens)

    def expects(self, sample: StepSample) -> tuple[float, float]:
        """What a step, and its decodes alone, were predicted to take, before it is learned from."""
        model = self.model
        alone_s = model.predict_s(sample.decodes, sample.kv_tokens, 0, 0)
        if not sample.prefill_tokens:
            return alone_s, alone_s
        return model.predict_s(*sample.features), alone_s

    def judge(
        self,
        sample: StepSample,
        expected: tuple[float, float],
        tokens: int,
        *,
        changed: bool,
        applied: bool,
    ) -> None:
        """Learn from a step what the SLA needs beside the model.

        Args:
            expected: as ``expects`` had it.
            tokens: of decodes, that came under this SLA.
            changed: whether the step shows another regime.
            applied: whether its chunk was sized here.
        """
        self.steps += 1
        prompts = sample.prefill_tokens > 0
        if prompts:
            self._starved_steps = 0
        if changed:
            self._target.regime_changed()
        self._target.observe(tokens, *expected, sample.duration_s, prompts=prompts, applied=applied)
        # Steps without room have no prompt tokens, and another target may be what makes room.
        starving = self._starved_steps % REFRESH_STEPS == REFRESH_STEPS - 1
        if sample.decodes and (self._target.due or starving):
            self._target.refresh(self.model, sample.kv_tokens / sample.decodes)
            self._full_s = None

    def resumed(self, gap_s: float) -> None:
        """Learn from the gap between two tokens of a request that was preempted between them."""
        if gap_s > self._limit_s:
            self._target.late_token()

    def see(self, waiting: int) -> None:
        """Before each chunk: so many requests wait."""
        self._demand.see(waiting)

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        """Prompt tokens of the next step, from 0 to ``most``.

        Args:
            decodes, kv: requests that decode, and their KV tokens.
            context: tokens of the first prompt of the queue that are computed already.
            least: fewer tokens get no prompt any further; after ``STARVED_STEPS`` steps of less,
                one has as many.
        """
        room = prefill_room(self.model, decodes, kv, context, self.until_s)
        chunk = math.floor(min(max(room, 0), most))
        self._starved_steps = 0 if chunk >= least else self._starved_steps + 1
        return min(least, most) if self._overdue else chunk

    @property
    def _overdue(self) -> bool:
        return self._starved_steps >= STARVED_STEPS

    def look(self, leads: DeadlineSlack | None, remaining: Remaining | None) -> None:
        """Before each chunk: what matters where delivery is paced (``controller.models.pace``)."""

    def decodes_until_s(self, largest: int = 0, model: StepModel | None = None) -> float:
        """How long steps of decodes alone may take as they go on, seconds.

        Args:
            largest: KV tokens of the largest request: where it breaks D by itself, it is no reason
                to serve nobody beside it.
            model: the one by which they are predicted; None: ``model`` of now.
        """
        wanted_s = min(self._target.target_s, self._limit_s)
        return step_limit_s(model or self.model, self._limit_s, wanted_s, largest)

    @property
    def _of_starts(self) -> list[StepModel]:
        """What says whether decodes will be in time, either of them.

        A start is for hundreds of steps: an engine that is slower for seconds goes on as usual.
        """
        usual = self._target.usual
        return [self.model] if usual is None else [self.model, usual]

    def in_time(self, decodes: int, kv: int, largest: int = 0) -> bool:
        """Whether so many decodes, with so many KV tokens at most, are."""
        beyond = max(kv - self._most_kv, 0)
        return any(
            model.predict_s(decodes, kv, 0, 0)
            + self._unread_s(model) * beyond * beyond / max(kv, 1)
            <= self.decodes_until_s(largest, model)
            for model in self._of_starts
        )

    def fitting(self, together: Forecast, largest: int = 0) -> int:
        """How many candidates may start so that decodes are in time up to the end of all."""
        kv = together.reads + SHARED_DEVIATIONS * together.error
        fitting = 0
        for model in self._of_starts:
            step_s = self._decodes_s(model, together.alive, kv)
            in_time = step_s.max(axis=1) <= self.decodes_until_s(largest, model)
            fitting = max(fitting, leading(in_time))
        return fitting

    def _decodes_s(self, model: StepModel, decodes: Floats, kv: Floats) -> Floats:
        """What steps of so many decodes are predicted to take, seconds; of their shape."""
        step_s: Floats = model.c0 + model.c1 * decodes + model.c2 * kv
        if unread_s := self._unread_s(model):
            beyond = np.maximum(kv - self._most_kv, 0.0)
            step_s = step_s + unread_s * beyond * beyond / np.maximum(kv, 1.0)
        return step_s

    def _unread_s(self, model: StepModel) -> float:
        """What a token of KV is guessed to take beyond the model's c2, seconds.

        No step tells what reading more KV costs than any has read. Decodes are bound by memory, so
        a byte of it is taken to cost what a byte of the weights costs in the shortest step so far,
        and no more than if the step that read most had done nothing else. It is charged for KV
        beyond the most that was read, times the share of the whole that this is: the less, the more
        was read, since a step has a part that reads nothing, too.
        """
        if not self._kv_read_frac or not self._most_kv or self._shortest_s == math.inf:
            return 0.0
        read_s = min(self._kv_read_frac * self._shortest_s, self._most_read_s)
        return max(read_s - model.c2, 0.0)
