"""A shorter ITL target for the engine, so that the SLA holds where tokens leave the server.

The engine keeps its own steps inside the SLA. After that a token waits for the detokenizer and for
the process that sends it, and these waits differ from token to token. The share of late tokens is
therefore also counted where they leave, and scales the target of the engine: an outer loop around
``controller.law.target``.
"""

from dataclasses import dataclass
from typing import Self

from controller.law.target import AIM

# A sync takes STEP times the excess of late tokens off the target: with 5% of late tokens 6% in
# half a minute, at two syncs a second.
STEP = 0.03
# Lower bound: if tokens are late for another reason than long steps, it would only cost throughput.
LEAST = 0.85
# Weight of a new sync in the smoothed shares, half a minute of them: a sync covers only ten steps.
NEW = 1 / 60


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps between tokens, and how many of them were longer than the SLA; both only rise."""

    n: int = 0
    late: int = 0

    def since(self, before: Self) -> "Gaps":
        """Gaps counted after ``before``; all of them if the counter was reset."""
        if self.n < before.n or self.late < before.late:
            return Gaps(self.n, self.late)
        return Gaps(self.n - before.n, self.late - before.late)

    @property
    def late_frac(self) -> float:
        """The late share, 0 to 1; 0 without any gap."""
        return self.late / self.n if self.n else 0.0


class ClientFeedback:
    """Turns tokens that leave late into the share of the SLA that steps may take.

    Only tokens that were in time in the engine count: the law handles the others. A sync lowers the
    target only if too many tokens were late before it as well: one pause of the host makes all
    tokens of a sync late, and tells little of the next.

    Args:
        percentile: percentage of the gaps between tokens that is to be within the SLA.

    Attributes:
        itl_frac: the target of steps as a share of the SLA, from ``LEAST`` to 1.
    """

    def __init__(self, percentile: float) -> None:
        self._allowed_frac = AIM * (1 - percentile / 100)
        self._before: tuple[Gaps, Gaps] | None = None
        self._engine_frac = self._left_frac = 0.0
        self.itl_frac = 1.0

    def pass_over(self, engine: Gaps, left: Gaps) -> None:
        """Skip what was counted so far, as the steps had no target."""
        self._before = engine, left

    def learn(self, engine: Gaps, left: Gaps) -> float:
        """Take the counts so far, in the engine and where tokens leave; returns ``itl_frac``."""
        before, self._before = self._before, (engine, left)
        if before is None:  # what was counted before this clock ran
            return self.itl_frac
        in_engine, leaving = engine.since(before[0]), left.since(before[1])
        if in_engine.n:
            self._engine_frac += NEW * (in_engine.late_frac - self._engine_frac)
        if leaving.n:
            allowed = max(self._engine_frac, self._allowed_frac)
            excess = leaving.late_frac - allowed
            if excess < 0 or self._left_frac > allowed:
                self.itl_frac = min(max(self.itl_frac - STEP * excess, LEAST), 1.0)
            self._left_frac += NEW * (leaving.late_frac - self._left_frac)
        return self.itl_frac
