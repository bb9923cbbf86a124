"""Other ways to choose a replica for the turns of a conversation."""

import random
import zlib

from serve_app.routing.held import Prefix
from serve_app.routing.replica_load import Asked, ReplicaLoad
from simulator.replay.fleet import Router, prefix_of
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
    """A conversation stays with one engine, by a hash of its name."""

    def __init__(self, engines: int) -> None:
        self._engines = engines

    def pick(self, request: Request, now_s: float) -> int:
        """The engine of its conversation."""
        return zlib.crc32(f"conversation {request.conversation}".encode()) % self._engines

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


class FirstCharacters(Router):
    """What `prefix_affinity` was: whoever was sent the first 1,024 characters last has it all."""

    def __init__(self, engines: int, seed: int) -> None:
        super().__init__(engines, seed, {}, prefix_affinity=True)

    def pick(self, request: Request, now_s: float) -> int:
        """By the first piece alone, which stands for the whole prompt."""
        begins = prefix_of(request)
        first = begins.pieces[:1] if begins is not None else ()
        prefix, asked = Prefix(first, request.input_tokens), Asked(request.input_tokens)
        chosen = self._chooser.choose(
            self._places, asked, now_s, prefix=prefix, among=self._places
        ).replica
        for piece in first:  # the last one alone was remembered
            self._chooser._held[None]._pieces[piece] = {chosen: 0.0}
        self._chooser.sent(chosen, asked, now_s)
        return chosen
