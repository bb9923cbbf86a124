"""How many waiting requests KV memory has room for, now and as the batch goes on.

``controller.models.lookahead`` gives the forecast, ``controller.models.price`` what a preemption
and an empty slot cost; this keeps what they need from step to step: the survival of output lengths
and, where the share of preempted requests has an upper bound, theta, which is corrected by the
preemptions that happen.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from controller.models.lookahead import (
    Floats,
    Forecast,
    Ints,
    Outlook,
    forecast,
    forecast_leading,
    holds,
    leading,
)
from controller.models.price import first_passage, pays, recompute_price
from controller.models.requests import Requests
from controller.models.step_time import StepModel
from controller.models.survival import ENDS_KEPT, Exposure, LengthHistory, Survival

# What is known of lengths is brought up to date every HURRY_STEPS, but more seldom once KNOWN ends
# tell them to 10% and fewer than NEW of these are new: 2% more would not move a decision.
HURRY_STEPS, REFRESH_STEPS = 8, 64
FIRST_FEW = 8  # candidates that are asked together, once the first one has been let in
KNOWN, NEW = 100, 0.02
# Theta starts at one deviation. It moves up by THETA_STEP for a preemption, but once for those
# within COOL_STEPS, which have one cause; and down by its share of the accepted rate for each
# request that finished, so that in the long run that share of them is preempted.
THETA_START, THETA_STEP, THETA_RANGE = 1.0, 0.2, (0.0, 3.0)
COOL_STEPS = 8


@dataclass(frozen=True, slots=True)
class _Forecasts:
    """A forecast and what it began with.

    Args:
        ahead: its horizons.
        base, together: of those that run, and of them with each prefix of the candidates.
        held: tokens in memory now.
        holds: tokens that each candidate will hold at first.
        recomputed: tokens that are computed again where it is preempted: not fewer with windows of
            attention, which keep a part of them.
        elsewhere: tokens held by requests that do not run.
    """

    ahead: Ints
    base: Forecast
    together: Forecast
    held: float
    holds: Floats
    recomputed: Floats
    elsewhere: int


class Admission:
    """Memory's part of ``adaptive``, for one engine.

    Args:
        kv_tokens, block_tokens: KV memory and its unit, tokens.
        epsilon: the share of requests that may be preempted, at most (epsilon_M of the paper);
            None: as many as pay.
    """

    def __init__(self, kv_tokens: int, block_tokens: int, epsilon: float | None) -> None:
        self._kv_tokens, self._block_tokens = kv_tokens, block_tokens
        self._epsilon = epsilon
        self.theta = THETA_START
        self._history = LengthHistory()
        # Output tokens of those that ended since the last refresh; nobody may ask for long.
        self._finished: deque[int] = deque(maxlen=ENDS_KEPT)
        self._aborted: deque[int] = deque(maxlen=ENDS_KEPT)
        self._fleet: Exposure | None = None
        self._shifted = False  # lengths have changed since: the group's are older than that
        self._survival: Survival | None = None
        self._outlook: Outlook | None = None
        self._made = self._steps = self._cool_until = 0

    def receive(self, fleet_counts: tuple[float, ...] | None) -> None:
        """The group's counts of output lengths, for as long as the own ones are few."""
        if fleet_counts is not None and not self._shifted:  # the local fallback has none
            self._fleet = Exposure.of_finished(fleet_counts)

    def stepped(self) -> None:
        """A step is done."""
        self._steps += 1

    def finished(self, output_tokens: int, *, applied: bool = True) -> None:
        """A request ended by itself after so many tokens.

        Args:
            applied: whether admission went by this; else the end says nothing of theta.
        """
        self._finished.append(max(output_tokens, 1))
        if applied:
            self._move_theta(-THETA_STEP * (self._epsilon or 0.0))

    def aborted(self, output_tokens: int) -> None:
        """A request was aborted after so many tokens."""
        self._aborted.append(output_tokens)

    def preempted(self) -> None:
        """A request lost its KV blocks: memory was overcommitted."""
        if self._steps >= self._cool_until:
            self._cool_until = self._steps + COOL_STEPS
            self._move_theta(THETA_STEP)

    def _move_theta(self, by: float) -> None:
        low, high = THETA_RANGE
        self.theta = min(max(self.theta + by, low), high)

    def fitting(
        self,
        running: Requests,
        candidates: Requests,
        kv_used: int,
        model: StepModel,
        held_elsewhere: int = 0,
    ) -> tuple[int, Forecast | None]:
        """How many of the candidates, in order, start now (``controller.models.price``).

        Args:
            kv_used: tokens of KV memory in use; less than what the requests hold where they share
                prefixes.
            model: what a step takes, and so what an empty slot and a preemption cost.
            held_elsewhere: of them, those held by requests that do not run.

        Returns:
            The count, and the forecast of the running ones with each prefix of the candidates;
            None where memory is so large that nothing had to be forecast.
        """
        longest = self._current(running, candidates).longest
        _, common = self._in_memory(running, kv_used - held_elsewhere)
        most = running.most(longest) + candidates.most(longest) + common + held_elsewhere
        if most + (len(running) + len(candidates)) * self._block_tokens <= self._kv_tokens:
            return len(candidates), None
        batch = self._forecast(running, candidates, kv_used, held_elsewhere)
        fitting = self._paying(batch, len(running), model)
        if self._epsilon is not None:
            peaks = batch.together.upper(self.theta).max(axis=1) + held_elsewhere
            fitting = min(fitting, leading(peaks <= self._kv_tokens))
        return fitting, batch.together

    def _paying(self, batch: "_Forecasts", running: int, model: StepModel) -> int:
        """How many candidates, in order, gain more by starting now than they may lose."""
        base, together, held = batch.base, batch.together, batch.holds
        n = len(held)
        # The first one often has to wait, and then nothing is asked of the others.
        for start, stop in pairwise(sorted({0, 1, min(FIRST_FEW, n), n})):
            few = slice(start, stop)
            alive = np.diff(together.alive[:stop], axis=0, prepend=base.alive[None, :])[start:]
            now = (batch.held + held[:stop].cumsum())[few, None]
            overflow = first_passage(
                self._kv_tokens - now,
                together.mean[few] + batch.elsewhere - now,
                together.chance[few],
            )
            overflow[together.worst[few] + batch.elsewhere <= self._kv_tokens] = 0.0
            again = batch.recomputed[few]
            price = recompute_price(model, running + np.arange(start, stop), again)
            fits = now[:, 0] < self._kv_tokens
            paying = pays(fits, overflow, alive, again, batch.ahead, price)
            if not paying.all():
                return start + leading(paying)
        return n

    def forecast(
        self,
        running: Requests,
        candidates: Requests,
        kv_used: int,
        held_elsewhere: int = 0,
    ) -> Forecast:
        """The batch with the first candidate, the first two, and so on."""
        return self._forecast(running, candidates, kv_used, held_elsewhere).together

    def _forecast(
        self,
        running: Requests,
        candidates: Requests,
        kv_used: int,
        held_elsewhere: int,
    ) -> "_Forecasts":
        outlook = self._looked_out(running, candidates)
        frac, common = self._in_memory(running, kv_used - held_elsewhere)
        block = self._block_tokens
        base = forecast(running, outlook, block_tokens=block, frac=frac)
        if common:
            base = base.with_prefixes(common, int(running.shared.sum()))
        leading_ones = forecast_leading(candidates, outlook, block_tokens=block, frac=frac)
        return _Forecasts(
            outlook.ahead,
            base,
            base.plus(leading_ones),
            float(holds(running, block, frac).sum()) + common + held_elsewhere,
            holds(candidates, block, frac),
            holds(candidates, block, 1.0),
            held_elsewhere,
        )

    def _in_memory(self, running: Requests, kv_used: int) -> tuple[float, float]:
        """Of what a request holds alone, the part kept in memory; and what prefixes take there.

        What is used beyond what requests hold alone is shared prefixes, by two requests at least.
        Where less is used than that, something is not kept: windows of attention.
        """
        alone = int((running.computed - running.shared).sum())
        alone += len(running) * self._block_tokens // 2
        if alone > kv_used > 0:
            return kv_used / alone, 0.0
        return 1.0, min(max(kv_used - alone, 0), int(running.shared.sum()) / 2)

    def _current(self, running: Requests, candidates: Requests) -> Survival:
        """What is known of lengths, brought up to date where it is due."""
        known = self._history.ends
        settled = known >= KNOWN and len(self._finished) <= NEW * known
        at_most = REFRESH_STEPS if settled else HURRY_STEPS
        if self._survival and self._steps < self._made + at_most:
            return self._survival
        self._made = self._steps
        # A preempted request waits with the tokens it has generated.
        outputs = np.concatenate([running.outputs, candidates.outputs])
        if self._history.update(self._finished, self._aborted, outputs, self._survival):
            self._fleet, self._shifted = None, True
        self._finished.clear()
        self._aborted.clear()
        self._survival = Survival(self._pooled())
        return self._survival

    def _looked_out(self, running: Requests, candidates: Requests) -> Outlook:
        """The outlook, made when it is asked for: with memory to spare nobody does."""
        # A waiting request may be older than all running ones.
        oldest = int(max(running.outputs.max(initial=0), candidates.outputs.max(initial=0)))
        survival, last = self._current(running, candidates), self._outlook
        if last is None or last.survival is not survival or not last.knows(oldest):
            self._outlook = last = Outlook(survival, oldest + REFRESH_STEPS, last)
        return last

    def _pooled(self) -> Exposure:
        own, fleet = self._history.seen, self._fleet
        missing = ENDS_KEPT - self._history.ends
        if fleet is None or missing <= 0:
            return own
        # A newcomer's own history, filled up with the group's.
        return own.plus(fleet, missing / max(float(fleet.ended.sum()), missing))
