"""A replica's start: what it takes, phase by phase, and Python's garbage collector meanwhile."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator

import psutil


class StartUp:
    """The phases of one start.

    Attributes:
        phases: seconds of each, in their order.
    """

    def __init__(self, began_s: float, clock: Callable[[], float] = time.time) -> None:
        """Args: when the process began and what the time is, both in seconds of one clock."""
        self.phases: dict[str, float] = {}
        self._clock, self._until_s = clock, began_s

    def ends(self, phase: str) -> None:
        """The phase began where the last one ended, and ends now."""
        now_s = self._clock()
        self.phases[phase] = self.phases.get(phase, 0.0) + now_s - self._until_s
        self._until_s = now_s

    def __str__(self) -> str:
        each = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in self.phases.items())
        return f"Replica started in {sum(self.phases.values()):.1f} s: {each}"


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """No garbage collection in a ``with`` block; a quarter of what vLLM's imports take is that.

    Imports leave a million objects that stay, which each collection looks through in vain. Later
    ones do not look through them either.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


# Of this process, where it is a replica's. Ray may have started the process ahead of time.
REPLICA = StartUp(psutil.Process().create_time())
REPLICA.ends("process")
