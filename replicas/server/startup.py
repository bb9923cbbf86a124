"""A replica's start: the duration of each phase, and garbage collection during imports."""

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
        """Args: start of the process and a clock, both in seconds of that clock."""
        self.phases: dict[str, float] = {}
        self._clock, self._until_s = clock, began_s

    def ends(self, phase: str) -> None:
        """A phase ends now; it began when the last one ended."""
        now_s = self._clock()
        self.phases[phase] = self.phases.get(phase, 0.0) + now_s - self._until_s
        self._until_s = now_s

    def __str__(self) -> str:
        each = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in self.phases.items())
        return f"Replica started in {sum(self.phases.values()):.1f} s: {each}"


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """No garbage collection in a ``with`` block; it is a quarter of the time of vLLM's imports.

    Imports leave a million permanent objects, which each collection would traverse. They are frozen
    at the end, so later collections skip them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


# Of this process, if it is a replica's. Ray may have started the process ahead of time.
REPLICA = StartUp(psutil.Process().create_time())
REPLICA.ends("process")
