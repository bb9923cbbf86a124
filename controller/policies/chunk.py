"""The prefill chunk that the SLA leaves a step beside its decodes.

``adaptive`` asks a ``ChunkSizer``, of which there are three kinds: ``GapChunks`` bounds each gap
between tokens, ``PacedChunks`` goes by deadlines, ``ClassChunks`` by the SLO of each request.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from controller.capacity import step_limit_s
from controller.models.arrays import Floats
from controller.models.demand import Demand
from controller.models.lookahead import SHARED_DEVIATIONS, Forecast, leading
from controller.models.online import OnlineStepModel, guess, prefill_room
from controller.models.requests import Requests
from controller.models.step_target import REFRESH_STEPS, StepTarget
from controller.models.step_time import StepModel
from controller.records import StepSample

STARVED_STEPS = 100  # one late step in so many is what a percentile of 99 allows


class Prediction(NamedTuple):
    """What a step, and its decodes alone, were predicted to take before it was learned from.

    Args:
        changed: the step shows that the engine's speed has changed.
    """

    step_s: float
    decodes_s: float
    changed: bool


class StepHistory:
    """What the steps so far tell of one engine: how long they take, and what is asked of it.

    Args:
        guess_s: what a step may take, before any was seen.
        graph_tokens, kv_read_frac: as in ``EngineLimits``.

    Attributes:
        online: the step-time model.
        steps: how many it has learned from.
    """

    def __init__(self, guess_s: float, *, graph_tokens: int = 0, kv_read_frac: float = 0.0) -> None:
        self.online, self.demand = OnlineStepModel(guess(guess_s)), Demand()
        if graph_tokens:
            self.online.captured(graph_tokens)
        self._kv_read_frac, self._most_kv = kv_read_frac, 0
        self._last_s, self._shortest_s = math.inf, math.inf
        self._most_read_s = math.inf  # a token of KV takes no more: none of the steps did
        self.steps = 0

    @property
    def model(self) -> StepModel:
        """The step-time model of now."""
        return self.online.model

    def receive(self, model: StepModel | None) -> None:
        """The group's step-time model; None where there is none yet."""
        if model is not None and model != self.online.prior:
            self.online.set_prior(model)

    def observe(self, sample: StepSample) -> Prediction:
        """Learn from a step; what was predicted of it before."""
        model = self.model
        alone_s = step_s = model.predict_s(sample.decodes, sample.kv_tokens, 0, 0)
        if sample.prefill_tokens:
            step_s = model.predict_s(*sample.features)
        self.steps += 1
        self._see_kv(sample)
        self.demand.observe(
            sample.decodes, sample.prefill_tokens, sample.duration_s, sample.started
        )
        changed = self.online.learn(*sample.features, sample.duration_s)
        return Prediction(step_s, alone_s, changed)

    def _see_kv(self, sample: StepSample) -> None:
        self._most_kv = max(self._most_kv, sample.kv_tokens)
        # Of two in a row the longer: the output after a late one comes early.
        both_s = max(sample.duration_s, self._last_s)
        self._last_s, self._shortest_s = sample.duration_s, min(self._shortest_s, both_s)
        if sample.kv_tokens:
            self._most_read_s = min(self._most_read_s, both_s / sample.kv_tokens)

    def step_s(self, model: StepModel, decodes: int, kv: int) -> float:
        """What a step of so many decodes is predicted to take, seconds."""
        beyond = max(kv - self._most_kv, 0)
        unread_s = self._unread_s(model) * beyond * beyond / max(kv, 1)
        return model.predict_s(decodes, kv, 0, 0) + unread_s

    def steps_s(self, model: StepModel, decodes: Floats, kv: Floats) -> Floats:
        """The same of many, of their shape; without the launch of a step."""
        step_s: Floats = model.c0 + model.c1 * decodes + model.c2 * kv
        if unread_s := self._unread_s(model):
            beyond = np.maximum(kv - self._most_kv, 0.0)
            step_s = step_s + unread_s * beyond * beyond / np.maximum(kv, 1.0)
        return step_s

    def _unread_s(self, model: StepModel) -> float:
        """What a token of KV is guessed to take beyond the model's c2, seconds.

        No step tells what reading more KV costs than any has read. Decodes are bound by memory, so
        a byte of it is taken to cost what a byte of the weights costs in the shortest step so far,
        and no more than the least seconds per KV token of any step. It is charged for KV
        beyond the most that was read, times the share of the whole that this is: the less, the more
        was read, since a step has a part that reads nothing, too.
        """
        if not self._kv_read_frac or not self._most_kv or self._shortest_s == math.inf:
            return 0.0
        read_s = min(self._kv_read_frac * self._shortest_s, self._most_read_s)
        return max(read_s - model.c2, 0.0)


class ChunkSizer:
    """Latency's part of ``adaptive``, for one engine; a kind says what it is bound by.

    Attributes:
        target: the step-time target that counts late gaps; None: there is none.
        deviations: of forecast KV that steps are taken to read more.
    """

    target: StepTarget | None = None
    deviations = 0.0

    def __init__(self, history: StepHistory) -> None:
        self.history = history

    @property
    def reported(self) -> StepModel:
        """The step-time model of now, with ``StepTarget.tail_frac``."""
        tail_frac = self.target.tail_frac if self.target else 0.0
        return replace(self.history.model, tail_frac=tail_frac)

    def set_target_frac(self, itl_frac: float) -> None:
        """Keep this share of D."""
        if self.target:
            self.target.set_target_frac(itl_frac)

    def resumed(self, gap_s: float, slo_id: int = 0) -> None:
        """Learn from the gap between two tokens of a request that was preempted between them."""
        if self.target:
            self.target.waited(gap_s)

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        """Learn from a step.

        Args:
            applied: whether its chunk was sized here.
        """
        raise NotImplementedError

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        """Prompt tokens of the next step, from 0 to ``most``.

        Args:
            decodes, kv: requests that decode, and their KV tokens.
            context: computed tokens of the first half-computed prompt, or the mean of the first
                four where long ones share the chunk and that is more; 0 where all are queued.
            least: after ``STARVED_STEPS`` chunks in a row of less, and no prompt token computed,
                one is as large. Fewer tokens count as computed where prompts need no whole blocks.
        """
        raise NotImplementedError

    def decode_targets(self, largest: int = 0) -> list[tuple[StepModel, float]]:
        """How long steps of decodes alone may take by a model, seconds; one of several is enough.

        Args:
            largest: KV tokens of the largest request: where it breaks D by itself, it is no reason
                to serve nobody beside it.
        """
        raise NotImplementedError

    def starting(
        self,
        running: Requests,
        candidates: Requests,
        most_kv: int,
        together: Forecast | None,
        forecast: Callable[[Requests], Forecast],
        /,
    ) -> int:
        """How many candidates start so that decodes stay in time; one in an empty engine.

        Args:
            most_kv: tokens that all of them hold at most.
            together: their forecast, where memory had to be forecast.
            forecast: gives that of the candidates, or of some.
        """
        n = len(candidates)
        largest = int(np.maximum.reduce(running.computed, initial=0))
        largest = max(largest, int(np.maximum.reduce(candidates.tokens)))
        if together is not None:
            fitting = self.fitting(together, largest)
        elif self.in_time(len(running) + n, most_kv, largest):
            return n
        else:
            # The first one often has to wait, and then nothing is asked of the others.
            for few in (candidates.first(1), candidates):
                if not (fitting := self.fitting(forecast(few), largest)):
                    break
        return max(fitting, 0 if len(running) else 1)

    def in_time(self, decodes: int, kv: int, largest: int = 0) -> bool:
        """Whether a step of so many decodes, with at most so many KV tokens, ends in time."""
        step_s = self.history.step_s
        targets = self.decode_targets(largest)
        return any(step_s(model, decodes, kv) <= target_s for model, target_s in targets)

    def fitting(self, together: Forecast, largest: int = 0) -> int:
        """How many candidates may start so that decodes are in time up to the end of all."""
        kv = together.reads + self.deviations * together.error
        steps_s = self.history.steps_s
        return max(
            leading(steps_s(model, together.alive, kv).max(axis=1) <= target_s)
            for model, target_s in self.decode_targets(largest)
        )


class GapChunks(ChunkSizer):
    """Each gap between tokens is to be within D.

    Args:
        itl_s: D, seconds.
        percentile: of the gaps between tokens, this many % are to be within D.
    """

    deviations = SHARED_DEVIATIONS

    def __init__(self, itl_s: float, percentile: float, history: StepHistory) -> None:
        super().__init__(history)
        self.target: StepTarget = StepTarget(itl_s, percentile, history.demand)
        self._starved_steps = 0  # for which there was no room for a prompt

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        self.judge(sample, self.history.observe(sample), sample.decodes, applied=applied)

    def judge(
        self, sample: StepSample, predicted: Prediction, tokens: int, *, applied: bool
    ) -> None:
        """Learn from a step what the SLA needs beside the model.

        Args:
            tokens: of decodes, that came under this SLA.
            applied: whether its chunk was sized here.
        """
        target, prompts = self.target, sample.prefill_tokens > 0
        if prompts:
            self._starved_steps = 0
        if predicted.changed:
            target.regime_changed()
        step_s, decodes_s, took_s = predicted.step_s, predicted.decodes_s, sample.duration_s
        target.observe(tokens, step_s, decodes_s, took_s, prompts=prompts, applied=applied)
        # Steps without room have no prompt tokens, and another target may be what makes room.
        starving = self._starved_steps % REFRESH_STEPS == REFRESH_STEPS - 1
        if sample.decodes and (target.due or starving):
            target.refresh(self.history.model, sample.kv_tokens / sample.decodes)

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        room = prefill_room(self.history.model, decodes, kv, context, self.target.target_s)
        chunk = math.floor(min(max(room, 0), most))
        self._starved_steps = 0 if chunk >= least else self._starved_steps + 1
        return min(least, most) if self._starved_steps >= STARVED_STEPS else chunk

    def decode_targets(self, largest: int = 0) -> list[tuple[StepModel, float]]:
        # A start is for hundreds of steps: in an engine that is slower for seconds requests start.
        models = [one for one in (self.history.model, self.target.mean_model) if one is not None]
        itl_s, target_s = self.target.itl_s, min(self.target.target_s, self.target.itl_s)
        return [(one, step_limit_s(one, itl_s, target_s, largest)) for one in models]
