"""Scheduler overhead: CPU time of this thread in our code inside vLLM's scheduler."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler

from simulator.virtual.scheduler import VirtualScheduler

TIMED = ("schedule", "update_from_output", "add_request", "_preempt_request", "_free_request")


class Watch:
    """Runs while our code is the innermost of the timed calls."""

    def __init__(self) -> None:
        self.overhead_ns = 0
        self._ours = False
        self._since_ns = 0

    def switch(self, ours: bool) -> bool:
        """Enter our code or vLLM's; returns which it was before."""
        now_ns = time.thread_time_ns()
        before = self._ours
        if before:
            self.overhead_ns += now_ns - self._since_ns
        self._ours, self._since_ns = ours, now_ns
        return before


def timed(cls: type, *, ours: bool, names: Sequence[str] = TIMED) -> type:
    """``cls``, with these methods switching the watch of the instance."""

    def switching(name: str) -> Callable[..., Any]:
        inherited = getattr(cls, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.watch.switch(ours)
            try:
                return inherited(self, *args, **kwargs)
            finally:
                self.watch.switch(before)

        return call

    return type(f"Timed{cls.__name__}", (cls,), {name: switching(name) for name in names})


class _WatchedScheduler(VirtualScheduler):
    def __init__(self, *args: Any, watch: Watch, **kwargs: Any) -> None:
        self.watch = watch
        super().__init__(*args, **kwargs)


def watched_scheduler() -> type[VirtualScheduler]:
    """The scheduler with a ``watch`` that measures its overhead."""
    # In the order of lookup vLLM's timed methods come between ours and vLLM's.
    ours = timed(_WatchedScheduler, ours=True, names=(*TIMED, "exchange"))
    return type("WatchedVirtualScheduler", (ours, timed(AsyncScheduler, ours=False)), {})
