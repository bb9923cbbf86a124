"""A number of replicas over time, and how far two of them are apart."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.workloads.lengths import Floats

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Change:
    """At this moment the number became another; seconds."""

    at_s: float
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.at_s:.0f} s: {self.before} to {self.after}"


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """A step function: each number holds from its moment until the next one's.

    Args:
        at_s: ascending, seconds; before the first moment the first number holds as well.
        number: from each moment on, shape of ``at_s``.
    """

    at_s: Floats
    number: Ints

    @classmethod
    def of(cls, samples: Iterable[tuple[float, int]]) -> "Counts":
        """From (seconds, number), in order of time; at least one.

        Raises:
            ValueError: there is none, or time goes back.
        """
        listed = list(samples)
        if not listed:
            raise ValueError("a number over time needs at least one sample")
        at_s = np.array([at for at, _ in listed], dtype=np.float64)
        if (np.diff(at_s) < 0).any():
            raise ValueError("the samples of a number over time go back in time")
        return cls(at_s, np.array([number for _, number in listed], dtype=np.int64))

    @classmethod
    def of_ticks(cls, first: int, numbers: Ints, tick_s: float) -> "Counts":
        """From numbers after each tick, the first tick's at ``tick_s``.

        Args:
            first: before it.
        """
        at_s = np.arange(len(numbers) + 1, dtype=np.float64) * tick_s
        return cls(at_s, np.concatenate([[first], numbers]).astype(np.int64))

    def at(self, time_s: Floats) -> Ints:
        """The numbers at these times."""
        index = np.searchsorted(self.at_s, time_s, side="right") - 1
        return self.number[np.maximum(index, 0)]

    def changes(self, until_s: float) -> list[Change]:
        """Each change after 0 and before ``until_s``."""
        found = []
        for k in range(1, len(self.at_s)):
            before, after, at_s = int(self.number[k - 1]), int(self.number[k]), float(self.at_s[k])
            if before != after and 0 < at_s < until_s:
                found.append(Change(at_s, before, after))
        return found


def replica_s(counts: Counts, until_s: float) -> float:
    """Replica-seconds from 0 to ``until_s``."""
    edges = _edges((counts,), until_s)
    return float(counts.at(edges[:-1]) @ np.diff(edges))


def apart_s(one: Counts, other: Counts, until_s: float) -> float:
    """The area between two, from 0 to ``until_s``, in replica-seconds."""
    edges = _edges((one, other), until_s)
    return float(np.abs(one.at(edges[:-1]) - other.at(edges[:-1])) @ np.diff(edges))


def starts_s(wanted: Counts, running: Counts) -> list[float]:
    """How long each start took: from the moment one more was wanted until one more ran.

    Who was wanted first comes first; what is no longer wanted was called off, the newest first.
    """
    took: list[float] = []
    asked: deque[float] = deque()
    moments = np.unique(np.concatenate([wanted.at_s, running.at_s]))
    ran = int(running.number[0])
    for at_s, want, runs in zip(moments, wanted.at(moments), running.at(moments), strict=True):
        came = min(max(int(runs) - ran, 0), len(asked))
        took.extend(float(at_s - asked.popleft()) for _ in range(came))
        ran, coming = int(runs), max(int(want) - int(runs), 0)
        while len(asked) > coming:
            asked.pop()
        asked.extend([float(at_s)] * (coming - len(asked)))
    return took


def _edges(each: tuple[Counts, ...], until_s: float) -> Floats:
    """0, ``until_s`` and all moments between them."""
    moments = np.concatenate([counts.at_s for counts in each])
    inside = moments[(moments > 0) & (moments < until_s)]
    return np.unique(np.concatenate([[0.0], inside, [until_s]]))
