"""How many requests of batches are sent at once: as many as the server takes.

Additive increase, multiplicative decrease: n answers make room for one more; a refusal (429, 503)
halves the window, once for all requests that were under way, and nothing is sent for as long as the
server asked. Online requests make room that way: admission refuses a sheddable class first.
"""

import asyncio
from collections import deque

FIRST, LEAST = 8.0, 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


class Window:
    """Slots for requests, given in the order in which they were asked for.

    Args:
        most: slots, at most.
    """

    def __init__(self, most: int) -> None:
        self._most = float(most)
        self._size = min(FIRST, self._most)
        self._open = 0
        self._sent = 0  # counts slots that were given
        self._halved_at = self._refusals = 0
        self._paused = False
        self._asking: deque[asyncio.Future[int]] = deque()

    @property
    def size(self) -> int:
        """Slots now."""
        return int(self._size)

    async def take(self) -> int:
        """Wait for a slot; its number."""
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asking.append(asked)
        self._give()
        try:
            return await asked
        except asyncio.CancelledError:
            if asked.done() and not asked.cancelled():
                self.left()  # it was given in the same moment
            raise

    def left(self) -> None:
        """A request that we ended ourselves, without an answer."""
        self._open -= 1
        self._give()

    def answered(self) -> None:
        """A request that ended with an answer of the server."""
        self._refusals = 0
        if self._open >= self.size:  # only a full window can be too small
            self._size = min(self._size + 1 / self._size, self._most)
        self.left()

    def refused(self, number: int, retry_after_s: float | None) -> None:
        """The server refused a request for now.

        Args:
            number: of the request's slot.
            retry_after_s: how long the server asks to wait; None: it does not say.
        """
        if number > self._halved_at:
            self._size = max(self._size / 2, LEAST)
            self._halved_at = self._sent
            self._pause(retry_after_s)
        self.left()

    def _pause(self, asked_s: float | None) -> None:
        usual_s = FIRST_PAUSE_S * 2.0 ** min(self._refusals, 10)
        self._refusals += 1
        self._paused = True
        pause_s = min(usual_s if asked_s is None else max(asked_s, 0.0), LONGEST_PAUSE_S)
        asyncio.get_running_loop().call_later(pause_s, self._go_on)

    def _go_on(self) -> None:
        self._paused = False
        self._give()

    def _give(self) -> None:
        while self._asking and self._open < self.size and not self._paused:
            asked = self._asking.popleft()
            if not asked.done():
                self._open += 1
                self._sent += 1
                asked.set_result(self._sent)
