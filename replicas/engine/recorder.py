"""What an engine does, recorded for one caller while that asks for it."""

import math
from collections.abc import Callable
from typing import Any


class Recorder:
    """Records from now until ``stop``; what a subclass hooks costs nothing otherwise.

    Args:
        scheduler: a ``DynamicBatchScheduler``; call every method between two steps.
        owner: the unique name of the caller.
        undrained_s: the recording ends if it is not drained for this long.

    Attributes:
        recording: whether it goes on.
    """

    _unhook: Callable[[], None]

    def __init__(self, scheduler: Any, owner: str = "", undrained_s: float = math.inf) -> None:
        self.owner, self.recording = owner, True
        self._scheduler, self._undrained_s = scheduler, undrained_s
        self._drained_s = scheduler.now_s()

    def drain(self) -> dict[str, Any]:
        """What was recorded since the last call; primitives alone."""
        self._drained_s = self._scheduler.now_s()
        return {}

    def stop(self) -> None:
        """Stop recording and restore the engine; what was not drained stays."""
        if self.recording:
            self.recording = False
            self._unhook()

    def _is_asked(self) -> bool:
        """Whether somebody drains it; if not, it ends."""
        if self._scheduler.now_s() - self._drained_s > self._undrained_s:
            self.stop()
            self.drain()
        return self.recording
