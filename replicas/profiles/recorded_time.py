"""A recorded run as a map from work to time, on which steps of any length are replayed.

Work is a step's predicted time, time is the recorded time. A replayed step of predicted p seconds
consumes p seconds of work, and takes the recording's time for this work. So correlations in time
remain, and replayed steps of any length together take (recorded time / predicted time) times as
long as predicted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from controller.models.arrays import Floats

SPREAD = 1.1  # times the median of its neighbours: a recorded step's time beyond that was one pause
NEIGHBOURS = 7  # steps before, and as many after
BLOCK_S = 5.0  # seconds of work replayed in order, before the next part of the recording is drawn


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A recorded run, step by step.

    Args:
        predicted_s: by the fit, from what each step computed; above 0. Shape (steps,).
        measured_s: as they were recorded; above 0. Shape (steps,).
    """

    predicted_s: Floats
    measured_s: Floats


class RecordedTime:
    """Times of replayed steps.

    The recording is a ring. After every ``BLOCK_S`` of work the position in it is drawn anew, all
    positions alike. A pause is one point of work, at random within the step that had it; the rest
    of a step's time is spread over its work evenly. So no pause is cut into several, and none is
    smeared over steps shorter than those recorded. Phases in which all steps are slow are no
    pauses: a step's time is measured against the median of its neighbours (measured / predicted).
    """

    def __init__(self, recording: Recording, rng: np.random.Generator) -> None:
        predicted_s, measured_s = recording.predicted_s, recording.measured_s
        level = _median_of_neighbours(measured_s / predicted_s)
        evenly_s = np.minimum(measured_s, SPREAD * level * predicted_s)
        where = rng.random(len(predicted_s))
        paused = np.stack([np.zeros_like(where), where, where], axis=1)
        work_s = _starts(predicted_s)[:, None] + paused * predicted_s[:, None]
        time_s = _starts(measured_s)[:, None] + paused * evenly_s[:, None]
        time_s[:, 2] += measured_s - evenly_s
        self._whole_work_s, self._whole_time_s = float(predicted_s.sum()), float(measured_s.sum())
        self._work_s = np.append(work_s.ravel(), self._whole_work_s)
        self._time_s = np.append(time_s.ravel(), self._whole_time_s)
        self._rng = rng
        self._at_s = 0.0  # of work, since the ring's beginning
        self._since_s = 0.0  # the time of that work
        self._left_s = 0.0  # of work, until the end of the block

    def time_s(self, work_s: float) -> float:
        """How long the next ``work_s`` seconds of predicted work take."""
        time_s = 0.0
        while work_s > 0:
            if self._left_s <= 0:
                self._at_s, self._left_s = self._rng.uniform(0, self._whole_work_s), BLOCK_S
                self._since_s = self._time_of(self._at_s)
            part_s = min(work_s, self._left_s)
            self._at_s += part_s
            since_s, self._since_s = self._since_s, self._time_of(self._at_s)
            time_s += self._since_s - since_s
            self._left_s -= part_s
            work_s -= part_s
        return time_s

    def _time_of(self, at_s: float) -> float:
        rounds, at_s = divmod(at_s, self._whole_work_s)
        return rounds * self._whole_time_s + float(np.interp(at_s, self._work_s, self._time_s))


def _median_of_neighbours(values: Floats) -> Floats:
    ring = np.pad(values, NEIGHBOURS, mode="wrap")
    return np.median(sliding_window_view(ring, 2 * NEIGHBOURS + 1), axis=1)


def _starts(lengths: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
