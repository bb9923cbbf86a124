"""An error of our own costs a step its limits, and not the engine its life.

Our code runs before and after vLLM's own in ``schedule()`` and its like, where an exception ends
EngineCore and with it every request (decision 32). vLLM's own errors pass.
"""

import logging
import math
from collections.abc import Callable
from typing import ParamSpec

logger = logging.getLogger(__name__)

SAY_AGAIN_S = 60.0
P = ParamSpec("P")


class Guard:
    """Runs code of our own and outlives its errors. What could not be counted is not.

    Args:
        now_s: the engine's clock.
        fatal: an error ends the engine all the same, as a replay or a test wants it.

    Attributes:
        errors: calls that ended with an error, since the engine started.
        clock_s: of the last step.
    """

    def __init__(self, now_s: float, *, fatal: bool = False) -> None:
        self.errors, self.clock_s, self._fatal = 0, now_s, fatal
        self._said_s: dict[str, float] = {}  # when the log last had each kind
        self._fails_since_s: dict[str, float] = {}

    def attempt(self, what: str, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Do what is to be done for a step; whether it went well.

        Args:
            what: it is, for a log.
        """
        try:
            act(*args, **kwargs)
        except Exception:
            if self._fatal:
                raise
            self.errors += 1
            self._fails_since_s.setdefault(what, self.clock_s)
            if self.clock_s - self._said_s.get(what, -math.inf) >= SAY_AGAIN_S:
                self._said_s[what] = self.clock_s
                logger.exception(
                    "An error of Brimful's own, in %s; the engine goes on (%d so far)",
                    what,
                    self.errors,
                )
            return False
        if self._fails_since_s:
            self._fails_since_s.pop(what, None)
        return True

    def fails_for(self, what: str, seconds: float) -> bool:
        """Whether it has failed for so long, or the clock went back meanwhile."""
        return not 0 <= self.clock_s - self._fails_since_s[what] < seconds
