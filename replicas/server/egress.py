"""Where tokens leave the server: the time between them, as its clients are to see it."""

import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from controller.law.client_feedback import LEAST, Gaps
from replicas.admission.asgi import App, Message, Receive, Send

# Of a stream, and without a token: its end, an error, a comment that keeps the connection open.
NO_TOKEN = (b"data: [DONE]", b'data: {"error"', b":")
NO_TOKEN_TEXT = tuple(one.decode() for one in NO_TOKEN)
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


class LeavingMiddleware:
    """ASGI middleware, outside of all others that may hold a chunk."""

    def __init__(self, app: App, tokens: LeavingTokens) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        tokens, clock = self._tokens, self._tokens.clock
        sent_s: float | None = None  # when the last chunk had been sent

        async def counted(message: Message) -> None:
            nonlocal sent_s
            if message.get("more_body") and (body := message["body"]) and _has_token(body):
                if sent_s is not None:
                    tokens.add(clock() - sent_s)
                await send(message)
                # A client that is slow to read holds up its own stream: that time is not ours.
                sent_s = clock()
            else:
                await send(message)

        await self._app(scope, receive, counted)


def _has_token(body: bytes) -> bool:
    if body.startswith(NAMED):
        return body[len(NAMED) : body.find(b"\n")].endswith(DELTAS)
    return not body.startswith(NO_TOKEN)


async def counted_items(
    items: AsyncGenerator[Any, None], tokens: LeavingTokens
) -> AsyncGenerator[Any, None]:
    """The same, with their gaps counted, where chunks leave as values to Ray Serve's ingress."""
    taken_s: float | None = None
    try:
        async for item in items:
            if isinstance(item, str):
                if taken_s is not None and not item.startswith(NO_TOKEN_TEXT):
                    tokens.add(tokens.clock() - taken_s)
                yield item
                taken_s = tokens.clock()
            else:
                yield item
    finally:
        await items.aclose()
