"""A client that leaves, told to vLLM's handlers in the way they listen for.

Ray Serve cancels the task of a request whose client left (or whose time is up). vLLM runs a handler
in a task of its own beside one that waits for ``http.disconnect``, and a wait that is cancelled
ends neither: the handler would go on, and its answer would be computed to the end for nobody.
"""

import asyncio
import contextlib
from typing import Any

from replicas.admission.asgi import App, Message, Receive, Send

LEFT: Message = {"type": "http.disconnect"}
ENDS_BY_ITSELF_S = 1.0  # after which an app that did not listen, or still sends, is cancelled


class DisconnectMiddleware:
    """ASGI middleware, outside of what computes: a request that is cancelled hears of a disconnect.

    The app is then given a second to end by itself; what it still sends reaches nobody.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._running: set[asyncio.Task[None]] = set()  # asyncio holds tasks weakly

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        request = _Request(receive, send)
        task = asyncio.ensure_future(self._app(scope, request.receive, request.send))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            request.left.set()
            task.add_done_callback(_forget)
            asyncio.get_running_loop().call_later(ENDS_BY_ITSELF_S, task.cancel)
            raise


class _Request:
    """One request's ``receive`` and ``send``, until its client is gone."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self.left = asyncio.Event()

    async def receive(self) -> Message:
        """The next message; a disconnect once the request is cancelled."""
        if self.left.is_set():
            return LEFT
        message = asyncio.ensure_future(self._receive())
        left = asyncio.ensure_future(self.left.wait())
        try:
            await asyncio.wait((message, left), return_when=asyncio.FIRST_COMPLETED)
            return LEFT if self.left.is_set() else message.result()
        finally:
            for one in (message, left):
                one.cancel()

    async def send(self, message: Message) -> None:
        if not self.left.is_set():
            await self._send(message)


def _forget(task: "asyncio.Task[None]") -> None:
    """What an app ends with that nobody waits for any more is no error."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
