"""KV memory of a batch as it is and as it goes on, with each prefix of the candidates."""

from dataclasses import dataclass

import numpy as np

from controller.models.lookahead import (
    Floats,
    Forecast,
    Ints,
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
        frac: of a request's tokens, those that are kept.
        elsewhere: tokens held by requests that do not run.
    """

    survival_table: SurvivalTable
    base: Forecast
    held: float
    frac: float
    elsewhere: int


@dataclass(frozen=True, slots=True)
class BatchForecast:
    """A forecast and what it began with.

    Args:
        ahead: its horizons.
        base, together: of the running ones, and of them with each prefix of the candidates.
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


@dataclass(frozen=True, slots=True)
class KvMemory:
    """An engine's KV memory and its unit, tokens."""

    tokens: int
    block_tokens: int

    def has_room_for_all(
        self, running: Requests, candidates: Requests, most: int, used: int, elsewhere: int
    ) -> bool:
        """Whether it holds them all even where they come to hold ``most`` alone, together.

        Args:
            used: tokens in use; less than what the requests hold where they share prefixes.
            elsewhere: of them, those held by requests that do not run.
        """
        _, common = self.kept(running, used - elsewhere)
        blocks = (len(running) + len(candidates)) * self.block_tokens
        return most + common + elsewhere + blocks <= self.tokens

    def forecast(
        self,
        survival_table: SurvivalTable,
        running: Requests,
        candidates: Requests,
        used: int,
        elsewhere: int,
    ) -> BatchForecast:
        """How it goes on. Arguments as in ``has_room_for_all``."""
        return self.with_candidates(
            self.running_only(survival_table, running, used, elsewhere), candidates
        )

    def running_only(
        self, survival_table: SurvivalTable, running: Requests, used: int, elsewhere: int
    ) -> RunningForecast:
        """How the running ones go on. Arguments as in ``has_room_for_all``."""
        frac, common = self.kept(running, used - elsewhere)
        block = self.block_tokens
        base = forecast(running, survival_table, block_tokens=block, frac=frac)
        if common:
            base = base.with_prefixes(common, running.shared_tokens)
        held = float(holds(running, block, frac).sum()) + common + elsewhere
        return RunningForecast(survival_table, base, held, frac, elsewhere)

    def with_candidates(self, running: RunningForecast, candidates: Requests) -> BatchForecast:
        """The running ones with each prefix of the candidates."""
        block, frac, survival_table = self.block_tokens, running.frac, running.survival_table
        first_ones = forecast_leading(candidates, survival_table, block_tokens=block, frac=frac)
        return BatchForecast(
            survival_table.ahead,
            running.base,
            running.base.plus(first_ones),
            running.held,
            holds(candidates, block, frac),
            holds(candidates, block, 1.0),
            running.elsewhere,
        )

    def kept(self, running: Requests, used: int) -> tuple[float, float]:
        """Resident fraction of unshared KV, and what prefixes take in memory.

        What is used beyond what requests hold alone is shared prefixes, by two requests at least.
        Where less is used than that, something is not kept: windows of attention; or their last
        blocks are fuller than half, as where requests of one length run in step, and then the part
        has the forecast begin with what is held.
        """
        shared = running.shared_tokens
        alone = int(np.add.reduce(running.computed)) - shared
        alone += len(running) * self.block_tokens // 2
        if alone > used > 0:
            return used / alone, 0.0
        return 1.0, min(max(used - alone, 0), shared / 2)
