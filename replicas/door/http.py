"""The door as ASGI middleware: in front of vLLM's own app and of Ray Serve LLM's ingress."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from starlette._utils import get_route_path
from starlette.middleware.cors import CORSMiddleware

from replicas.admission.answers import RefusedError, bad_request
from replicas.admission.asgi import BODY, App, Body, Message, Receive, Send, replayed, send_answer
from replicas.admission.asked import BadRequestError, too_long
from replicas.door import responses
from replicas.door.door import LET_IN, NOBODY, Door
from replicas.door.keys import Key
from replicas.door.limits import bounded, check_fields, check_sent
from replicas.door.paths import METHODS

POLICY_VIOLATION = 1008  # of a websocket that is closed
WITH_BODY = ("PATCH", "POST", "PUT")
# Of a body that is too long, so much is read and thrown away before the answer: a client that
# still writes does not read it.
MOST_DISCARDED_BYTES = 64_000_000
DISCARDING_S = 10.0


class DoorMiddleware:
    """ASGI middleware, outside of all others. A chunk of an answer does not pass it."""

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
        try:
            if scope["type"] == "http" and scope["method"] in WITH_BODY:
                try:
                    receive = await self._read(scope, receive)
                except BadRequestError as error:
                    answer = bad_request(error.param, str(error), error.status)
                    door.count(_name(key), answer.reason)
                    await send_answer(answer, send)
                    return
            door.count(_name(key), LET_IN)
            await self._app(scope, receive, send)
        finally:
            door.leave(key)

    async def _read(self, scope: Any, receive: Receive) -> Receive:
        """Read the body, once for all, and check what it asks for.

        Returns:
            What the app reads it from.

        Raises:
            BadRequestError: it is too long, or asks for too much.
        """
        rules = self._door.rules
        headers = dict(scope["headers"])
        body, over = await _whole(receive, _length(headers), rules.most_body_bytes)
        if over is not None:
            return replayed([over], receive)
        fields = {} if _is_form(scope["headers"]) else _fields(body)
        path = get_route_path(scope)
        check_fields(fields, rules.limits, path)
        check_sent(fields, body)
        if path == responses.PATH:
            responses.check_input(fields)
        body = bounded(path, fields, rules.limits) or body
        scope[BODY] = Body(fields, len(body))
        return replayed([{"type": "http.request", "body": body, "more_body": False}], receive)


async def _turn_away(refused: RefusedError, scope: Any, send: Send) -> None:
    if scope["type"] == "http":
        await send_answer(refused.answer, send)
    else:
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})


async def _whole(receive: Receive, length: int, most_bytes: int) -> tuple[bytes, Message | None]:
    """The body; or, of a client that left, the message that says so."""
    parts, size, more = [], 0, length <= most_bytes
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b"", message
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        more = message.get("more_body", False)
        if size > most_bytes:
            break
    if max(size, length) > most_bytes:
        if more or not size:
            await _discard(receive, size, length)
        raise too_long(most_bytes)
    return b"".join(parts), None


async def _discard(receive: Receive, size: int, length: int) -> None:
    """Read what is left of a body, where that is not too much."""
    if length > MOST_DISCARDED_BYTES:
        return
    try:
        async with asyncio.timeout(DISCARDING_S):
            more = True
            while more and size <= MOST_DISCARDED_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        pass


def _length(headers: dict[bytes, bytes]) -> int:
    said = headers.get(b"content-length", b"0")
    return int(said[:20]) if said.isdigit() else 0


def _is_form(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the app reads the body as a form; of several types the app may go by any."""
    types = [value for name, value in headers if name == b"content-type"]
    return bool(types) and all(one.lower().startswith(b"multipart/") for one in types)


def _fields(body: bytes) -> dict[str, Any]:
    """The fields of a JSON object; what is none is for the app to refuse.

    Raises:
        BadRequestError: it is nested too deeply to be read here; the app might still read it.
    """
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    except RecursionError:
        raise BadRequestError("body", "JSON that is nested too deeply") from None
    return fields if isinstance(fields, dict) else {}


def _name(key: Key | None) -> str:
    return NOBODY if key is None else key.name
