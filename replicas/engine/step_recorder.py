"""Records features and duration of each step while a caller asks for it.

A recorder wraps two methods of a governor while it records; otherwise it costs a step nothing.
"""

import math
from collections import deque
from typing import Any

from controller.records import EngineState, StepLimits, StepSample
from replicas.engine.hooks import hook

COLUMNS = (
    "decodes",
    "kv_tokens",
    "prefill_tokens",
    "prefill_context",
    "duration_us",
)
MOST_STEPS = 100_000  # kept between two drains: 30 s of steps of 0.3 ms


class StepRecorder:
    """Records every step that is measured, from now until ``stop``.

    Features and ``duration_us`` are those of ``StepSample``, as the policy has them.

    Args:
        scheduler: a ``DynamicBatchScheduler``; call every method between two steps.
        owner: the unique name of the caller.
        undrained_s: the recording ends if it is not drained for this long.

    Attributes:
        recording: whether it goes on.
    """

    def __init__(self, scheduler: Any, owner: str = "", undrained_s: float = math.inf) -> None:
        self.owner = owner
        self._scheduler, self._undrained_s = scheduler, undrained_s
        self._steps: deque[tuple[int, ...]] = deque(maxlen=MOST_STEPS)
        self._drained_s = scheduler.now_s()
        self.recording = True
        arounds = {"before_step": self._before, "after_step": self._after}
        self._unhook = hook(scheduler.governor, arounds)

    def drain(self) -> dict[str, list[int]]:
        """The steps since the last call, oldest first: each column of COLUMNS, shape (steps,)."""
        self._drained_s = self._scheduler.now_s()
        steps, self._steps = self._steps, deque(maxlen=MOST_STEPS)
        columns = zip(*steps, strict=True) if steps else [()] * len(COLUMNS)
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    def stop(self) -> None:
        """Stop recording and restore the governor; undrained steps stay."""
        if self.recording:
            self.recording = False
            self._unhook()

    def _before(self, inner: Any) -> Any:
        def before_step(state: EngineState, now_s: float, *args: Any) -> StepLimits:
            if now_s - self._drained_s > self._undrained_s:
                self.stop()
                self._steps.clear()
            return inner(state, now_s, *args)

        return before_step

    def _after(self, inner: Any) -> Any:
        def after_step(sample: StepSample, *args: Any) -> None:
            inner(sample, *args)
            if 0 <= sample.duration_s < math.inf:  # the clock did not jump
                self._steps.append((*sample.features, round(sample.duration_s * 1e6)))

        return after_step
