"""How much of a prompt each replica's prefix cache holds, as far as a router knows. Pure.

A router remembers where it sent which pieces of prompts, each by a hash of all text up to its end.
vLLM evicts the block that was used longest ago. So a prefix is still cached if fewer tokens were
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

MOST_PIECES = 65_536  # 17 million tokens of different prompts, in pieces of 1,024 characters
MOST_HOLDERS = 64  # of one piece
LATELY = 64  # prompts by which shared beginnings are recognized
AGAIN = 3  # a moved token counts three times: computed, waited for, evicting another


class Memory(NamedTuple):
    """A replica's KV memory at one time.

    Args:
        written: tokens, since the replica started.
        free: tokens that no request holds; infinite if unknown.
    """

    written: float
    free: float

    def keeps(self, used: "Memory") -> bool:
        """Whether blocks are still there that were last used when memory was as ``used``."""
        free_then = used.free if used.free < math.inf else 0.0
        return self.written - used.written <= max(self.free, free_then)


@dataclass(frozen=True, slots=True)
class Prefix:
    """How a prompt begins.

    Args:
        pieces: a hash of all text up to the end of each whole piece; empty: too short to share.
        piece_tokens: tokens of one piece.
    """

    pieces: tuple[int, ...]
    piece_tokens: float


class HeldPrefixes(Generic[K]):
    """Where one router sent which pieces; the latest are kept."""

    def __init__(self, most: int = MOST_PIECES) -> None:
        self._most = most
        # By piece, then by replica: its memory when the piece was sent; the latest last.
        self._pieces: OrderedDict[int, dict[K, Memory]] = OrderedDict()
        self._lately: deque[Sequence[int]] = deque(maxlen=LATELY)

    def held(self, pieces: Sequence[int], replica: K, memory: Memory) -> int:
        """How many of the first pieces a replica holds, with its memory as ``memory`` now."""
        return bisect_left(pieces, True, key=lambda piece: self._gone(piece, replica, memory))

    def again(self, pieces: Sequence[int], first: int, among: Container[K], replicas: int) -> int:
        """How often tokens of the first pieces count on replicas that miss them.

        ``AGAIN`` if no other prompt began like this lately, 1 if some did. 0 if the share of such
        prompts is larger than the share of replicas that hold them; the least share that is told
        apart is one of ``LATELY``. Earlier turns of the same conversation are no other prompts.

        Args:
            first: number of pieces.
            among: the replicas, ``replicas`` in number.
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
        """Replicas by the number of pieces they were sent, most first, then the latest first.

        A replica may come more than once.
        """
        known = bisect_left(pieces, True, key=lambda piece: piece not in self._pieces)
        while known:
            yield from reversed(self._pieces.get(pieces[known - 1], {}))
            known //= 2

    def add(self, pieces: Sequence[int], replica: K, memory: Memory) -> Callable[[], None]:
        """Count a prompt as sent to a replica with this memory.

        Returns:
            Undoes it, if the prompt was not sent there after all.
        """
        before: dict[int, Memory | None] = {}
        if pieces:
            self._lately.append(pieces)
        for piece in reversed(pieces):  # so the first piece is forgotten last
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
        with suppress(ValueError):  # a prompt that is tried again counts once
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
