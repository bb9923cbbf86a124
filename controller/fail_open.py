"""An error in Brimful's code costs a step its limits, but does not end the engine.

Brimful's code runs before and after vLLM's in ``schedule()`` and similar methods, in which an
exception ends EngineCore with every request (decision 32). vLLM's own errors pass.
"""

import logging
import math
from collections.abc import Callable
from typing import ParamSpec

logger = logging.getLogger(__name__)

SAY_AGAIN_S = 60.0
P = ParamSpec("P")


class Guard:
    """Runs Brimful's code and survives its errors; what failed to be counted stays uncounted.

    Args:
        now_s: the engine's clock.
        fatal: errors end the engine all the same, as replays and tests need it.

    Attributes:
        errors: calls that failed since the engine started.
        clock_s: time of the last step.
    """

    def __init__(self, now_s: float, *, fatal: bool = False) -> None:
        self.errors, self.clock_s, self._fatal = 0, now_s, fatal
        self._said_s: dict[str, float] = {}  # last log message of each kind
        self._fails_since_s: dict[str, float] = {}

    def attempt(self, what: str, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Run ``act``; returns whether it succeeded.

        Args:
            what: its name in logs.
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
                    "Error in Brimful's own code, in %s; the engine goes on (%d so far)",
                    what,
                    self.errors,
                )
            return False
        if self._fails_since_s:
            self._fails_since_s.pop(what, None)
        return True

    def fails_for(self, what: str, seconds: float) -> bool:
        """Whether it has failed for this long; also true if the clock went back."""
        return not 0 <= self.clock_s - self._fails_since_s[what] < seconds
