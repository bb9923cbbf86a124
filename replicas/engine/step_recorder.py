"""Records features and duration of each step."""

import math
from collections import deque
from typing import Any

from controller.records import StepSample
from replicas.engine.hooks import beside, hook
from replicas.engine.recorder import Recorder

COLUMNS = (
    "decodes",
    "kv_tokens",
    "prefill_tokens",
    "prefill_context",
    "duration_us",
)
MOST_STEPS = 100_000  # kept between two drains: 30 s of steps of 0.3 ms


class StepRecorder(Recorder):
    """Features and ``duration_us`` are those of ``StepSample``, as the policy has them."""

    def __init__(self, scheduler: Any, *owner: Any) -> None:
        super().__init__(scheduler, *owner)
        self._steps: deque[tuple[int, ...]] = deque(maxlen=MOST_STEPS)
        around = beside(scheduler.guard, "a step that is recorded", self._note)
        self._unhook = hook(scheduler.governor, {"after_step": around})

    def drain(self) -> dict[str, list[int]]:
        """The steps since the last call, oldest first: each column of COLUMNS, shape (steps,)."""
        super().drain()
        steps, self._steps = self._steps, deque(maxlen=MOST_STEPS)
        columns = zip(*steps, strict=True) if steps else [()] * len(COLUMNS)
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    def _note(self, sample: StepSample) -> None:
        # Without an end the clock jumped.
        if self._is_asked() and 0 <= sample.duration_s < math.inf:
            self._steps.append((*sample.features, round(sample.duration_s * 1e6)))
