"""How much of a prompt's beginning each replica's prefix cache holds, as a router knows. Pure.

A router remembers which pieces of prompts it sent where, each by a hash over all up to its end.
vLLM evicts the block that was used longest ago. So a prefix is there as long as fewer tokens were
written to KV memory since than were free then, or are free now. A replica publishes both.
"""

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_PIECES = 65_536  # remembered: of 1,024 characters, 17 million tokens of different prompts
MOST_HOLDERS = 64  # of one piece
LATELY = 64  # prompts by which is judged what others begin with
AGAIN = 3  # times that a move's tokens count: computed again, waited for, evicting as many


class Memory(NamedTuple):
    """A replica's KV memory at one time.

    Args:
        written: tokens, since the replica began.
        free: tokens that no request holds; infinite if unknown.
    """

    written: float
    free: float

    def keeps(self, used: "Memory") -> bool:
        """Whether what was used last when memory was as ``used`` is still there."""
        free_then = used.free if used.free < math.inf else 0.0
        return self.written - used.written <= max(self.free, free_then)


@dataclass(frozen=True, slots=True)
class Prefix:
    """How a prompt begins.

    Args:
        pieces: a hash of its beginning up to the end of each whole piece; empty: it is too short to
            share anything.
        piece_tokens: of one.
    """

    pieces: tuple[int, ...]
    piece_tokens: float


class HeldPrefixes(Generic[K]):
    """What one router sent where, the pieces used last."""

    def __init__(self, most: int = MOST_PIECES) -> None:
        self._most = most
        # By piece, and by replica its memory when that was sent there; the latest last.
        self._pieces: OrderedDict[int, dict[K, Memory]] = OrderedDict()
        self._lately: deque[Sequence[int]] = deque(maxlen=LATELY)

    def held(self, pieces: Sequence[int], replica: K, memory: Memory) -> int:
        """How many of the first pieces a replica holds, whose memory is as ``memory`` now."""
        return bisect_left(pieces, True, key=lambda piece: self._gone(piece, replica, memory))

    def again(self, pieces: Sequence[int], first: int, among: Container[K], replicas: int) -> int:
        """How often tokens of the first pieces count where they are missing.

        ``AGAIN`` if no other prompt lately began so, once where some did, and never where a
        larger share of the prompts did than of the replicas holds them; so many prompts tell no
        smaller share than one of ``LATELY``. Prompts that this one may go on from are no others:
        they are its own conversation's.

        Args:
            first: so many of the pieces.
            among: of so many ``replicas``.
        """
        if not first:
            return AGAIN
        begin, lately = pieces[first - 1], self._lately
        others = sum(
            len(one) >= first and one[first - 1] == begin and not _goes_on(pieces, one)
            for one in lately
        )
        holders = sum(key in among for key in self._pieces[begin])
        if not others:
            return AGAIN
        return int(others * min(replicas, LATELY) <= holders * len(lately))

    def holders(self, pieces: Sequence[int]) -> Iterator[K]:
        """Replicas that were sent most of it, then those that were sent less, the latest first.

        Some come more than once.
        """
        known = bisect_left(pieces, True, key=lambda piece: piece not in self._pieces)
        while known:
            yield from reversed(self._pieces.get(pieces[known - 1], {}))
            known //= 2

    def add(self, pieces: Sequence[int], replica: K, memory: Memory) -> Callable[[], None]:
        """A prompt is sent to a replica with this memory.

        Returns:
            Takes it back: it was not sent there after all.
        """
        before: dict[int, Memory | None] = {}
        if pieces:
            self._lately.append(pieces)
        for piece in reversed(pieces):  # the first one is forgotten last
            holders = self._pieces.setdefault(piece, {})
            before[piece] = holders.pop(replica, None)
            holders[replica] = memory
            self._pieces.move_to_end(piece)
            if len(holders) > MOST_HOLDERS:
                del holders[next(iter(holders))]
        while len(self._pieces) > self._most:
            self._pieces.popitem(last=False)
        return partial(self._take_back, pieces, replica, memory, before)

    def _take_back(
        self,
        pieces: Sequence[int],
        replica: K,
        memory: Memory,
        before: Mapping[int, Memory | None],
    ) -> None:
        with suppress(ValueError):  # it comes again until a replica takes it, and counts once
            self._lately.remove(pieces)
        for piece, known in before.items():
            holders = self._pieces.get(piece, {})
            if holders.get(replica) != memory:
                continue  # another prompt was sent there since
            if known is None:
                del holders[replica]
            else:
                holders[replica] = known

    def _gone(self, piece: int, replica: K, memory: Memory) -> bool:
        used = self._pieces.get(piece, {}).get(replica)
        return used is None or not memory.keeps(used)


def _goes_on(pieces: Sequence[int], earlier: Sequence[int]) -> bool:
    return len(earlier) <= len(pieces) and pieces[len(earlier) - 1] == earlier[-1]
