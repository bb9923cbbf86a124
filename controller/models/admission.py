"""How many waiting requests KV memory has room for, now and as the batch goes on.

``controller.models.lookahead`` gives the forecast; this keeps what it needs from step to step: the
survival of output lengths, and theta, which is corrected by the preemptions that happen.
"""

import numpy as np

from controller.models.lookahead import (
    Forecast,
    LiveRequests,
    Outlook,
    forecast,
    forecast_leading,
    leading,
)
from controller.models.survival import RING, Exposure, LengthHistory, Survival

# What is known of lengths is brought up to date every HURRY_STEPS, but more seldom once KNOWN ends
# tell them to 10% and fewer than NEW of these are new: 2% more would not move a decision.
HURRY_STEPS, REFRESH_STEPS = 8, 64
KNOWN, NEW = 100, 0.02
# Theta starts at one deviation. It moves up by THETA_STEP for a preemption, but once for those
# within COOL_STEPS, which have one cause; and down by its share of the accepted rate for each
# request that finished, so that in the long run that share of them is preempted.
THETA_START, THETA_STEP, THETA_RANGE = 1.0, 0.2, (0.0, 3.0)
COOL_STEPS = 8
# Requests of equal lengths that start together end together, and the memory that all of them need
# at their end is half empty on average. Where the batch that looking ahead allows is below
# PACE_BELOW of the one that memory holds with mixed ages, requests start at most PACE times as fast
# as they do there, so that ages mix. Closer to 1 wastes more while the batch builds up.
PACE_BELOW, PACE = 0.9, 1.3


class Admission:
    """Memory's part of ``adaptive``, for one engine.

    Args:
        kv_tokens, block_tokens: KV memory and its unit, tokens.
        epsilon: the accepted share of requests that are preempted (epsilon_M of the paper).
    """

    def __init__(self, kv_tokens: int, block_tokens: int, epsilon: float) -> None:
        self._kv_tokens, self._block_tokens = kv_tokens, block_tokens
        self._epsilon = epsilon
        self.theta = THETA_START
        self._history = LengthHistory()
        self._finished: list[int] = []  # output tokens of those that ended since the last refresh
        self._left: list[int] = []
        self._fleet: Exposure | None = None
        self._survival: Survival | None = None
        self._outlook: Outlook | None = None
        self._means: tuple[float, float] | None = None
        self._made = self._steps = self._cool_until = 0
        self._credit = 0.0

    def hear(self, fleet_counts: tuple[float, ...] | None) -> None:
        """The group's counts of output lengths, for as long as the own ones are few."""
        if fleet_counts is not None:  # a lonely loop has none
            self._fleet = Exposure.of_finished(fleet_counts)

    def stepped(self) -> None:
        """A step is done."""
        self._steps += 1

    def finished(self, output_tokens: int) -> None:
        """A request ended by itself after so many tokens."""
        self._finished.append(max(output_tokens, 1))
        self._move_theta(-THETA_STEP * self._epsilon)

    def left(self, output_tokens: int) -> None:
        """A request was aborted after so many tokens."""
        self._left.append(output_tokens)

    def preempted(self) -> None:
        """A request lost its KV blocks: memory was overcommitted."""
        if self._steps >= self._cool_until:
            self._cool_until = self._steps + COOL_STEPS
            self._move_theta(THETA_STEP)

    def _move_theta(self, by: float) -> None:
        low, high = THETA_RANGE
        self.theta = min(max(self.theta + by, low), high)

    def fitting(
        self, running: LiveRequests, candidates: LiveRequests, kv_used: int
    ) -> tuple[int, Forecast | None]:
        """How many of the candidates, in order, memory has room for at every horizon.

        Args:
            kv_used: tokens of KV memory in use; less than what the requests hold where they share
                prefixes.

        Returns:
            The count, and the forecast of the running ones with each prefix of the candidates;
            None where memory is so large that nothing had to be forecast.
        """
        longest = self._current(running, candidates).longest
        _, common = self._in_memory(running, kv_used)
        most = running.most(longest) + candidates.most(longest) + common
        if most + (len(running) + len(candidates)) * self._block_tokens <= self._kv_tokens:
            return len(candidates), None
        together = self.forecast(running, candidates, kv_used)
        peaks = together.upper(self.theta).max(axis=1)
        return leading(peaks <= self._kv_tokens), together

    def forecast(self, running: LiveRequests, candidates: LiveRequests, kv_used: int) -> Forecast:
        """The batch with the first candidate, the first two, and so on."""
        outlook = self._looked_out(running, candidates)
        frac, common = self._in_memory(running, kv_used)
        block = self._block_tokens
        base = forecast(running, outlook, block_tokens=block, frac=frac)
        if common:
            base = base.with_prefixes(common, int(running.shared.sum()))
        return base.plus(forecast_leading(candidates, outlook, block_tokens=block, frac=frac))

    def _in_memory(self, running: LiveRequests, kv_used: int) -> tuple[float, float]:
        """Of what a request holds alone, the part kept in memory; and what prefixes take there.

        What is used beyond what requests hold alone is shared prefixes, by two requests at least.
        Where less is used than that, something is not kept: windows of attention.
        """
        alone = int((running.computed - running.shared).sum())
        alone += len(running) * self._block_tokens // 2
        if alone > kv_used > 0:
            return kv_used / alone, 0.0
        return 1.0, min(max(kv_used - alone, 0), int(running.shared.sum()) / 2)

    def paced(self, admitted: int, running: LiveRequests, waiting: int) -> int:
        """Of those that memory has room for, how many start now (``PACE``)."""
        if not len(running) or self._history.ends < KNOWN or not self._survival:
            return admitted
        if self._means is None:
            self._means = self._survival.means()
        mean, age = self._means
        alone = running.tokens - running.shared - running.outputs
        steady = self._kv_tokens / (float(alone.mean()) + age)
        if waiting < steady or len(running) + admitted > PACE_BELOW * steady:
            return admitted
        pace = PACE * steady / mean
        self._credit = min(self._credit + pace, max(1.0, 4 * pace))
        allowed = min(admitted, int(self._credit))
        self._credit -= allowed
        return allowed

    def _current(self, running: LiveRequests, candidates: LiveRequests) -> Survival:
        """What is known of lengths, brought up to date where it is due."""
        known = self._history.ends
        settled = known >= KNOWN and len(self._finished) <= NEW * known
        at_most = REFRESH_STEPS if settled else HURRY_STEPS
        if self._survival and self._steps < self._made + at_most:
            return self._survival
        self._made = self._steps
        # Who lost its KV blocks waits with what it has said.
        outputs = np.concatenate([running.outputs, candidates.outputs])
        if self._history.update(self._finished, self._left, outputs, self._survival):
            self._fleet = None
        self._finished, self._left = [], []
        self._survival = Survival(self._pooled())
        self._means = None
        return self._survival

    def _looked_out(self, running: LiveRequests, candidates: LiveRequests) -> Outlook:
        """The outlook, made when it is asked for: with memory to spare nobody does."""
        # Who waits may be older than all that run.
        oldest = int(max(running.outputs.max(initial=0), candidates.outputs.max(initial=0)))
        survival, last = self._current(running, candidates), self._outlook
        if last is None or last.survival is not survival or not last.knows(oldest):
            self._outlook = last = Outlook(survival, oldest + REFRESH_STEPS, last)
        return last

    def _pooled(self) -> Exposure:
        own, fleet = self._history.seen, self._fleet
        missing = RING - self._history.ends
        if fleet is None or missing <= 0:
            return own
        # A newcomer's own history, filled up with the group's.
        return own.plus(fleet, missing / max(float(fleet.ended.sum()), missing))
