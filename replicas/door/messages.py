"""What Anthropic's clients are answered: errors in the shape of their API, whoever makes them.

The door, admission and a replica's last words answer in OpenAI's shape, and so does vLLM's app
where it refuses a request before its handler. The handler's own errors have types that Anthropic's
API does not know.
"""

import json
from typing import Any

from starlette._utils import get_route_path

from replicas.admission.anthropics import error, is_messages
from replicas.admission.asgi import App, Message, Receive, Send

CLIENT_ERROR = 400


class MessagesMiddleware:
    """ASGI middleware, outside of all that answer errors."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_messages(get_route_path(scope)):
            send = _Translated(send).send
        await self._app(scope, receive, send)


class _Translated:
    """Sends an answer on, and that of an error in Anthropic's shape."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None  # of an error
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= CLIENT_ERROR:
            self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        start, self._start = self._start, None
        body = translated(start["status"], self._body)
        headers = [h for h in start["headers"] if h[0].lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def translated(status: int, body: bytes) -> bytes:
    """An error's body in Anthropic's shape; as it is where it says nothing that is known."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return body
    found = told.get("error", told.get("detail")) if isinstance(told, dict) else None
    message = found.get("message") if isinstance(found, dict) else found
    return json.dumps(error(status, message)).encode() if isinstance(message, str) else body
