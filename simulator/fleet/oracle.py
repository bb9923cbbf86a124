"""The oracle: it knows all arrivals to come, every length, and what a replica really carries.

A plan of replicas that have to be ready at each time is given to it; it asks for the most that is
needed from now until a start-up time ahead, so each replica starts just in time and none is given
back that would have to start again before it was gone.
"""

from collections.abc import Sequence
from typing import Any

READS: tuple[str, ...] = ()


class Oracle:
    """Args: needed: replicas that are to be ready, a value per ``step_s`` from 0 on."""

    def __init__(self, needed: Sequence[int], step_s: float, startup_s: float) -> None:
        self._needed, self._step_s, self._startup_s = list(needed), step_s, startup_s

    def __call__(self, ctx: Any) -> tuple[int, dict[str, Any]]:
        now, last = int(ctx.current_time / self._step_s), len(self._needed) - 1
        until = int((ctx.current_time + self._startup_s) / self._step_s) + 1
        return max(self._needed[min(now, last) : max(until, min(now, last) + 1)] or [1]), {}
