"""Reads a request's body once, for the auth middleware, admission and the app."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from starlette._utils import get_route_path

from replicas.admission.answers import BadRequestError
from replicas.admission.asgi import FIELDS, Message, Receive, replayed
from replicas.admission.asked import too_long
from replicas.door import responses
from replicas.door.limits import bounded, check_fields, check_sent
from replicas.door.settings import Limits

# At most this much of a body that is too long is read before the answer: a client that still
# writes does not read it.
MOST_DISCARDED_BYTES = 64_000_000
DISCARDING_S = 10.0


async def read_body(scope: Any, receive: Receive, limits: Limits) -> Receive:
    """Read and check the body, and keep its fields in the scope (``FIELDS``).

    Returns:
        The app's ``receive``.

    Raises:
        BadRequestError: the body is too long, or asks for too much.
    """
    headers = dict(scope["headers"])
    body, over = await _whole(receive, _length(headers), int(limits.max_body_mb * 1e6))
    if over is not None:
        return replayed([over], receive)
    fields = {} if _is_form(scope["headers"]) else _fields(body)
    path = get_route_path(scope)
    check_fields(fields, limits, path)
    check_sent(fields, body)
    if path == responses.PATH:
        responses.check_input(fields)
    body = bounded(path, fields, limits) or body
    scope[FIELDS] = fields
    return replayed([{"type": "http.request", "body": body, "more_body": False}], receive)


async def _whole(receive: Receive, length: int, most_bytes: int) -> tuple[bytes, Message | None]:
    """The body; or the disconnect message, if the client left."""
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
    """Read the rest of a body, if it is not too long."""
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
    """Whether the app reads the body as a form; with several types, it may use any type."""
    types = [value for name, value in headers if name == b"content-type"]
    return bool(types) and all(one.lower().startswith(b"multipart/") for one in types)


def _fields(body: bytes) -> dict[str, Any]:
    """The fields of a JSON object; empty if it is none, which the app refuses.

    Raises:
        BadRequestError: it is nested too deeply to be parsed here; the app might still parse it.
    """
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    except RecursionError:
        raise BadRequestError("body", "JSON that is nested too deeply") from None
    return fields if isinstance(fields, dict) else {}
