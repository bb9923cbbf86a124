"""How much of a prompt's beginning each replica's prefix cache holds, as a router knows. Pure.

A router remembers which pieces of prompts it sent where, each by a hash over all up to its end.
vLLM evicts the block that was used longest ago. So a prefix is there as long as fewer tokens were
written to KV memory since than are free now, and a replica publishes both.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_PIECES = 65_536  # remembered: of 1,024 characters, 17 million tokens of different prompts
MOST_HOLDERS = 64  # of one piece


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
        # By piece, and by replica how much that had written by then; the latest last.
        self._pieces: OrderedDict[int, dict[K, float]] = OrderedDict()

    def held(self, pieces: Sequence[int], replica: K, since: float) -> int:
        """How many of the first pieces a replica holds.

        Args:
            since: what was written there before that is evicted.
        """
        return bisect_left(pieces, True, key=lambda piece: self._gone(piece, replica, since))

    def holders(self, pieces: Sequence[int]) -> Iterator[K]:
        """Replicas that were sent most of it, then those that were sent less, the latest first.

        Some come more than once.
        """
        known = bisect_left(pieces, True, key=lambda piece: piece not in self._pieces)
        while known:
            yield from reversed(self._pieces.get(pieces[known - 1], {}))
            known //= 2

    def add(self, pieces: Sequence[int], replica: K, written: float) -> Callable[[], None]:
        """A prompt is sent to a replica that has written so much.

        Returns:
            Takes it back: it was not sent there after all.
        """
        before: dict[int, float | None] = {}
        for piece in reversed(pieces):  # the first one is forgotten last
            holders = self._pieces.setdefault(piece, {})
            before[piece] = holders.pop(replica, None)
            holders[replica] = written
            self._pieces.move_to_end(piece)
            if len(holders) > MOST_HOLDERS:
                del holders[next(iter(holders))]
        while len(self._pieces) > self._most:
            self._pieces.popitem(last=False)
        return partial(self._take_back, replica, written, before)

    def _take_back(self, replica: K, written: float, before: Mapping[int, float | None]) -> None:
        for piece, known in before.items():
            holders = self._pieces.get(piece, {})
            if holders.get(replica) != written:
                continue  # another prompt was sent there since
            if known is None:
                del holders[replica]
            else:
                holders[replica] = known

    def _gone(self, piece: int, replica: K, since: float) -> bool:
        written = self._pieces.get(piece, {}).get(replica)
        return written is None or written < since
