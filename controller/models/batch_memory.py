"""KV memory of a batch, now and forecast, with the first k candidates for each k."""

from dataclasses import dataclass

import numpy as np

from controller.models.arrays import Floats
from controller.models.lookahead import (
    Forecast,
    SurvivalTable,
    forecast,
    forecast_leading,
    holds,
)
from controller.models.requests import Requests


@dataclass(frozen=True, slots=True)
class RunningForecast:
    """How the running ones go on by themselves.

    Args:
        survival_table: what it was made with.
        base: the forecast.
        held: tokens in memory now.
        frac: resident fraction of a request's KV tokens.
        not_running: tokens held by requests that do not run.
    """

    survival_table: SurvivalTable
    base: Forecast
    held: float
    frac: float
    not_running: int


@dataclass(frozen=True, slots=True)
class BatchForecast:
    """A forecast of the batch with the first k candidates, for each k.

    Args:
        running: how the running ones go on by themselves.
        together: the forecast.
        holds: tokens that each candidate will hold at first.
        recomputed: tokens that are computed again where it is preempted: not fewer with windows of
            attention, which keep a part of them.
    """

    running: RunningForecast
    together: Forecast
    holds: Floats
    recomputed: Floats


@dataclass(frozen=True, slots=True)
class KvMemory:
    """An engine's KV memory and its unit, tokens."""

    tokens: int
    block_tokens: int

    def has_room_for_all(
        self, running: Requests, candidates: Requests, most: int, used: int, not_running: int
    ) -> bool:
        """Whether it holds them all even where they come to hold ``most`` alone, together.

        Args:
            used: tokens in use; less than what the requests hold where they share prefixes.
            not_running: of them, those held by requests that do not run.
        """
        _, common = self.kept(running, used - not_running)
        blocks = (len(running) + len(candidates)) * self.block_tokens
        return most + common + not_running + blocks <= self.tokens

    def running_only(
        self, survival_table: SurvivalTable, running: Requests, used: int, not_running: int
    ) -> RunningForecast:
        """How the running ones go on. Arguments as in ``has_room_for_all``."""
        frac, common = self.kept(running, used - not_running)
        block = self.block_tokens
        base = forecast(running, survival_table, block_tokens=block, frac=frac)
        if common:
            base = base.with_prefixes(common, running.shared_tokens)
        held = float(holds(running, block, frac).sum()) + common + not_running
        return RunningForecast(survival_table, base, held, frac, not_running)

    def with_candidates(self, running: RunningForecast, candidates: Requests) -> BatchForecast:
        """The running ones with the first k candidates, for each k."""
        block, frac, survival_table = self.block_tokens, running.frac, running.survival_table
        first_ones = forecast_leading(candidates, survival_table, block_tokens=block, frac=frac)
        return BatchForecast(
            running,
            running.base.plus(first_ones),
            holds(candidates, block, frac),
            holds(candidates, block, 1.0),
        )

    def kept(self, running: Requests, used: int) -> tuple[float, float]:
        """Resident fraction of unshared KV, and memory of shared prefixes, tokens.

        Unshared KV is estimated with half a block more for each request. What is used beyond it is
        shared prefixes, at most half of ``shared_tokens``, as two requests at least share each.
        Where less is used, the fraction is used / estimate: sliding windows dropped a part, or last
        blocks are more than half full.
        """
        shared = running.shared_tokens
        alone = int(np.add.reduce(running.computed)) - shared
        alone += len(running) * self.block_tokens // 2
        if alone > used > 0:
            return used / alone, 0.0
        return 1.0, min(max(used - alone, 0), shared / 2)
