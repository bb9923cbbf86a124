"""Egress: the time between tokens as clients see it."""

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from controller.law.client_feedback import LEAST, Gaps

# Chunks of a stream without a token: its end, an error, a comment that keeps the connection open.
NO_TOKEN = (b"data: [DONE]", b'data: {"error"', b":")
# In a stream of named events (messages, responses) only these have a token.
NAMED = b"event: "
DELTAS = (b".delta", b"content_block_delta")


class LeavingTokens:
    """Counts the gaps between the chunks of streams.

    Args:
        on: whether gaps tell of steps: each chunk is one token, and all requests have one SLA.

    Attributes:
        limit_s: the SLA; None: no gap is late.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, on: bool = True) -> None:
        self.on = on
        self.limit_s: float | None = None
        self.clock = clock
        self._n = self._late = 0

    @property
    def gaps(self) -> Gaps:
        """Gaps of all streams since the replica started."""
        return Gaps(self._n, self._late)

    def add(self, gap_s: float) -> None:
        """Count the time between two chunks.

        A gap beyond what the shortest allowed target could mend counts as in time: a chunk of
        several tokens, the first one after an announcing event, a pause. Shorter steps would cost
        throughput and not help.
        """
        self._n += 1
        limit_s = self.limit_s
        self._late += limit_s is not None and limit_s < gap_s <= limit_s / LEAST


class StreamGaps:
    """The gaps of one stream, added to ``LeavingTokens``."""

    def __init__(self, tokens: LeavingTokens) -> None:
        self._tokens = tokens
        self._left_s: float | None = None  # time when the last token was sent

    def leave(self, chunk: bytes) -> bool:
        """A chunk is about to be sent; returns whether it has a token: then call ``have_left``."""
        if not _has_token(chunk):
            return False
        if self._left_s is not None:
            self._tokens.add(self._tokens.clock() - self._left_s)
        return True

    def have_left(self) -> None:
        """The chunk was sent; a client that reads slowly delays only its own stream."""
        self._left_s = self._tokens.clock()


def _has_token(chunk: bytes) -> bool:
    if chunk.startswith(NAMED):
        return chunk[len(NAMED) : chunk.find(b"\n")].endswith(DELTAS)
    return bool(chunk) and not chunk.startswith(NO_TOKEN)


async def counted_items(
    items: AsyncGenerator[Any, None], tokens: LeavingTokens
) -> AsyncGenerator[Any, None]:
    """The items, with gaps counted, for chunks that go as values to Ray Serve's ingress."""
    gaps = StreamGaps(tokens)
    try:
        async for item in items:
            token = isinstance(item, str) and gaps.leave(item.encode())
            yield item
            if token:
                gaps.have_left()
    finally:
        await items.aclose()
