"""Other ways to choose a replica for the turns of a conversation."""

import random
import zlib

from serve_app.routing.replica_load import ReplicaLoad
from simulator.workloads.requests import Request


class RoundRobin:
    """One after the other."""

    def __init__(self, engines: int) -> None:
        self._engines, self._picked = engines, 0

    def pick(self, request: Request, now_s: float) -> int:
        """The next engine."""
        self._picked += 1
        return self._picked % self._engines

    def hear(self, engine: int, room: ReplicaLoad | None, now_s: float) -> None:
        """Nothing depends on it."""


class Sticky:
    """A conversation stays with one engine, by a hash of its name.

    Where that is not among ``places``, it stays with one that is, by the same hash.
    """

    def __init__(self, engines: int) -> None:
        self._engines, self.places = engines, range(engines)

    def pick(self, request: Request, now_s: float) -> int:
        """The engine of its conversation."""
        number = zlib.crc32(f"conversation {request.conversation}".encode())
        first = number % self._engines
        return first if first in self.places else self.places[number % len(self.places)]

    def hear(self, engine: int, room: ReplicaLoad | None, now_s: float) -> None:
        """Nothing depends on it."""


class TwoOutstanding:
    """It takes the one of two drawn at random with fewer requests, those sent since included."""

    def __init__(self, engines: int, seed: int) -> None:
        self._inside, self._random = [0] * engines, random.Random(seed)

    def pick(self, request: Request, now_s: float) -> int:
        """The emptier of two."""
        two = self._random.sample(range(len(self._inside)), 2)
        chosen = min(two, key=lambda k: self._inside[k])
        self._inside[chosen] += 1
        return chosen

    def hear(self, engine: int, room: ReplicaLoad | None, now_s: float) -> None:
        """What is inside by now."""
        if room is not None:
            self._inside[engine] = room.running + room.waiting
