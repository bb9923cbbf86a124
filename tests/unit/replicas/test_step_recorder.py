"""Steps are recorded as the governor is told of them, and nothing is left behind."""

import math

import pytest

from controller.records import EngineState, StepSample
from replicas.governor import Governor
from replicas.step_recorder import COLUMNS, StepRecorder
from tests.builders import batching, engine

IDLE = EngineState(0, 0, 0)


class Scheduler:
    """As much of a DynamicBatchScheduler as a recorder reads; one step at a time."""

    def __init__(self) -> None:
        self.clock_s = 100.0
        self.governor = Governor(batching(), engine(), leased=True, now_s=self.clock_s)
        self._was_busy, self._last_output_s = False, 0.0

    def now_s(self) -> float:
        return self.clock_s

    def step(self, gap_s: float, runs_s: float, duration_s: float | None = None) -> None:
        """A step that is asked for ``gap_s`` after the previous output and then ``runs_s`` long."""
        self.clock_s += gap_s
        self.governor.before_step(IDLE, self.clock_s)
        self.clock_s += runs_s
        lasted_s = runs_s + (gap_s if self._was_busy else 0.0)
        sample = StepSample(3, 500, 64, 2048, lasted_s if duration_s is None else duration_s)
        self.governor.after_step(sample, 1)
        self._last_output_s, self._was_busy = self.clock_s, True


def test_a_step_is_recorded_with_its_features_and_its_duration() -> None:
    scheduler = Scheduler()
    recorder = StepRecorder(scheduler)
    scheduler.step(gap_s=5.0, runs_s=0.030)  # after an idle engine
    scheduler.step(gap_s=0.002, runs_s=0.033)
    assert recorder.drain() == {
        "decodes": [3, 3],
        "kv_tokens": [500, 500],
        "prefill_tokens": [64, 64],
        "prefill_context": [2048, 2048],
        "duration_us": [30_000, 35_000],
    }
    assert recorder.drain() == {name: [] for name in COLUMNS}


@pytest.mark.parametrize("jump_s", [-1.0, math.inf, math.nan])
def test_a_step_in_which_the_clock_jumped_is_left_out(jump_s: float) -> None:
    scheduler = Scheduler()
    recorder = StepRecorder(scheduler)
    scheduler.step(0.0, 0.030, duration_s=jump_s)
    scheduler.step(0.0, 0.030)
    assert recorder.drain()["duration_us"] == [30_000]


def test_nothing_is_left_of_it_and_what_was_recorded_can_still_be_drained() -> None:
    scheduler = Scheduler()
    before = vars(scheduler.governor).keys() - set()
    recorder = StepRecorder(scheduler)
    scheduler.step(0.0, 0.030)
    recorder.stop()
    recorder.stop()
    scheduler.step(0.0, 0.040)
    assert vars(scheduler.governor).keys() == before
    assert recorder.drain()["duration_us"] == [30_000]
    assert scheduler.governor.report(IDLE, 101.0, "r", "g").itl.n == 6  # 3 decodes each


def test_it_ends_by_itself_when_nobody_drains_it() -> None:
    scheduler = Scheduler()
    recorder = StepRecorder(scheduler, undrained_s=10.0)
    scheduler.step(0.0, 6.0)
    recorder.drain()
    scheduler.step(0.0, 6.0)
    scheduler.step(0.0, 6.0)
    assert recorder.recording
    scheduler.step(0.0, 6.0)  # asked for 12 s after the last call
    assert not recorder.recording
    assert recorder.drain()["duration_us"] == []
