"""The door as ASGI middleware: in front of vLLM's own app and of Ray Serve LLM's ingress."""

from typing import Any

from replicas.admission.answers import RefusedError
from replicas.admission.asgi import App, Receive, Send, send_answer
from replicas.door.door import Door

POLICY_VIOLATION = 1008  # of a websocket that is closed


class DoorMiddleware:
    """ASGI middleware, outside of all others. A chunk of an answer does not pass it."""

    def __init__(self, app: App, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._door.enter(scope)
        except RefusedError as refused:
            if scope["type"] == "http":
                await send_answer(refused.answer, send)
            else:
                await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        await self._app(scope, receive, send)
