"""The auth middleware, in front of vLLM's own app and of Ray Serve LLM's ingress."""

from typing import Any

from starlette.middleware.cors import CORSMiddleware

from replicas.admission.answers import RefusedError
from replicas.admission.asgi import App, Receive, Send, send_answer
from replicas.door.auth import LET_IN, NOBODY, Door
from replicas.door.body import read_body
from replicas.door.paths import METHODS

POLICY_VIOLATION = 1008  # close code of a websocket
WITH_BODY = ("PATCH", "POST", "PUT")


class DoorMiddleware:
    """ASGI middleware: checks keys, paths and bodies. Chunks of an answer do not pass it."""

    def __init__(self, app: App, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif self._door.rules.cors_origins:
            origins = self._door.rules.cors_origins
            cors = CORSMiddleware(self._pass, origins, METHODS, ["*"], expose_headers=["*"])
            await cors(scope, receive, send)
        else:
            await self._pass(scope, receive, send)

    async def _pass(self, scope: Any, receive: Receive, send: Send) -> None:
        door = self._door
        try:
            key = door.enter(scope)
        except RefusedError as refused:
            await _turn_away(refused, scope, send)
            return
        name = NOBODY if key is None else key.name
        try:
            if scope["type"] == "http" and scope["method"] in WITH_BODY:
                try:
                    receive = await read_body(scope, receive, door.rules.limits)
                except RefusedError as refused:
                    door.count(name, refused.answer.reason)
                    await send_answer(refused.answer, send)
                    return
            door.count(name, LET_IN)
            await self._app(scope, receive, send)
        finally:
            door.leave(key)


async def _turn_away(refused: RefusedError, scope: Any, send: Send) -> None:
    if scope["type"] == "http":
        await send_answer(refused.answer, send)
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
