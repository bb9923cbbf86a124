"""Each step of any vLLM scheduler, with its duration: plain engines have no governor to record."""

import time
from typing import Any

from replicas.engine.step_recorder import COLUMNS
from replicas.engine.step_sample import step_sample


class StepLog:
    """Keeps every step from now on, as ``replicas.engine.step_recorder.StepRecorder`` does.

    Args:
        scheduler: plain or ours, which schedules no step ahead.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._steps: list[tuple[int, ...]] = []
        self._begin_s = self._last_output_s = 0.0
        self._was_busy = False
        self._schedule, self._update = scheduler.schedule, scheduler.update_from_output
        scheduler.schedule, scheduler.update_from_output = self._before, self._after

    def steps(self) -> dict[str, list[int]]:
        """Each column of ``COLUMNS``, shape (steps,)."""
        columns = zip(*self._steps, strict=True) if self._steps else [()] * len(COLUMNS)
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    def count(self) -> int:
        """How many there are."""
        return len(self._steps)

    def _before(self, *args: Any, **kwargs: Any) -> Any:
        now_s = time.perf_counter()
        self._begin_s = self._last_output_s if self._was_busy else now_s
        return self._schedule(*args, **kwargs)

    def _after(self, done: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = self._update(done, *args, **kwargs)
        now_s = time.perf_counter()
        if done.total_num_scheduled_tokens:
            sample, _ = step_sample(done, now_s - self._begin_s)
            self._steps.append((*sample.features, round(sample.duration_s * 1e6)))
        self._last_output_s, self._was_busy = now_s, bool(self._scheduler.running)
        return outputs
