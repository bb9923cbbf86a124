"""Where tokens leave the server: the time between them, as its clients are to see it."""

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from controller.law.client_feedback import LEAST, Gaps

# Of a stream, and without a token: its end, an error, a comment that keeps the connection open.
NO_TOKEN = (b"data: [DONE]", b'data: {"error"', b":")
# Of a stream of named events (messages, responses) these alone have a token.
NAMED = b"event: "
DELTAS = (b".delta", b"content_block_delta")


class LeavingTokens:
    """Counts the gaps between the chunks of streams.

    Args:
        on: whether they say something of steps: a chunk is a token, and one SLA is everybody's.

    Attributes:
        limit_s: the SLA; None: nothing is late.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, on: bool = True) -> None:
        self.on = on
        self.limit_s: float | None = None
        self.clock = clock
        self._n = self._late = 0

    @property
    def gaps(self) -> Gaps:
        """Those of all streams since the replica started."""
        return Gaps(self._n, self._late)

    def add(self, gap_s: float) -> None:
        """Count the time from one chunk's leaving to the next one's.

        One so long that the shortest steps that may be asked for would not bring it inside counts
        as in time: a chunk of several tokens, a first one behind an event that announces it, a
        pause. To shorten steps for those would cost throughput and mend nothing.
        """
        self._n += 1
        limit_s = self.limit_s
        self._late += limit_s is not None and limit_s < gap_s <= limit_s / LEAST


class StreamGaps:
    """The gaps of one stream, which are added to those of all."""

    def __init__(self, tokens: LeavingTokens) -> None:
        self._tokens = tokens
        self._left_s: float | None = None  # when the last token had been sent

    def leave(self, chunk: bytes) -> bool:
        """A chunk is sent now; whether it has a token, and ``have_left`` is to be told."""
        if not _has_token(chunk):
            return False
        if self._left_s is not None:
            self._tokens.add(self._tokens.clock() - self._left_s)
        return True

    def have_left(self) -> None:
        """It has been sent: a client that is slow to read holds up its own stream."""
        self._left_s = self._tokens.clock()


def _has_token(chunk: bytes) -> bool:
    if chunk.startswith(NAMED):
        return chunk[len(NAMED) : chunk.find(b"\n")].endswith(DELTAS)
    return bool(chunk) and not chunk.startswith(NO_TOKEN)


async def counted_items(
    items: AsyncGenerator[Any, None], tokens: LeavingTokens
) -> AsyncGenerator[Any, None]:
    """The same, with their gaps counted, where chunks leave as values to Ray Serve's ingress."""
    gaps = StreamGaps(tokens)
    try:
        async for item in items:
            token = isinstance(item, str) and gaps.leave(item.encode())
            yield item
            if token:
                gaps.have_left()
    finally:
        await items.aclose()
