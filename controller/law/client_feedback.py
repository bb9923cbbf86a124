"""What steps are held to, so that the SLA holds where tokens leave the server.

The engine measures its own steps and keeps those inside the SLA. On its way out a token still waits
for the process that makes text of it and for the one that sends it, and what two tokens wait
differs. The share of tokens that leave late is therefore counted where they leave, and moves what
the engine is held to, one loop outside of ``controller.law.target``.
"""

from dataclasses import dataclass
from typing import Self

from controller.law.target import AIM

# Share of the SLA that an exchange takes off, times its excess late share: 5% of late tokens take
# 6% off in half a minute, at two exchanges a second.
STEP = 0.03
# No further down: what is late for another reason than the steps' lengths only costs throughput.
LEAST = 0.85
# Of a new exchange in the late shares: half a minute of them. An exchange is ten steps or so, and
# the larger of its share and of what is allowed would be more than either on average.
NEW = 1 / 60


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps between tokens, and how many of them were longer than the SLA; both only rise."""

    n: int = 0
    late: int = 0

    def since(self, before: Self) -> "Gaps":
        """Those that came since; all of them if counting began anew."""
        if self.n < before.n or self.late < before.late:
            return Gaps(self.n, self.late)
        return Gaps(self.n - before.n, self.late - before.late)

    @property
    def late_frac(self) -> float:
        """Share of them that was late, 0 to 1; 0 if there was none."""
        return self.late / self.n if self.n else 0.0


class ClientFeedback:
    """Turns late tokens at the server's end into the share of the SLA that steps are held to.

    Only what is late there and was not in the engine counts: pauses that hit both are the engine's
    own to judge. An exchange takes something off only if too many were late before it already: one
    pause of the host makes all tokens of an exchange late, and says little of the next.

    Args:
        percentile: of all gaps between tokens, this many % are to be within the SLA.

    Attributes:
        itl_frac: what steps are held to, share of the SLA, from ``LEAST`` to 1.
    """

    def __init__(self, percentile: float) -> None:
        self._allowed_frac = AIM * (1 - percentile / 100)
        self._before: tuple[Gaps, Gaps] | None = None
        self._engine_frac = self._left_frac = 0.0
        self.itl_frac = 1.0

    def pass_over(self, engine: Gaps, left: Gaps) -> None:
        """Take what was counted so far, of which steps were not held to the SLA."""
        self._before = engine, left

    def learn(self, engine: Gaps, left: Gaps) -> float:
        """Take what was counted so far in the engine, and where tokens leave; ``itl_frac``."""
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
