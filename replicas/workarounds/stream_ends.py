"""A stream of ``/v1/responses`` that fails ends with an event that says so, and is not broken off.

vLLM 0.29 has no such event: it fails over every error in these streams, and the connection closes
in the middle of the answer (docs/upstream/vllm-grammar-errors.md).
"""

import json
from contextvars import ContextVar
from typing import Any

from vllm.exceptions import GenerationError

from replicas.admission.answers import SERVER_ERROR, kind
from replicas.admission.asgi import App, Message, Receive, Send

PATH = "/responses"
STREAM = b"text/event-stream"
FAILED = "Internal server error"  # of which a client is told nothing

_reasons: ContextVar[list[GenerationError] | None] = ContextVar("brimful_reasons", default=None)


def give_reason(error: GenerationError) -> None:
    """By which this request ends; of what is raised, Starlette drops it on the way here."""
    if (reasons := _reasons.get()) is not None:
        reasons.append(error)


class StreamEndMiddleware:
    """ASGI middleware, inside of those that may hold a chunk."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].rstrip("/").endswith(PATH):
            await self._app(scope, receive, send)
            return
        streams, events = False, 0
        reasons: list[GenerationError] = []
        _reasons.set(reasons)

        async def watched(message: Message) -> None:
            nonlocal streams, events
            if message["type"] == "http.response.start":
                kind = dict(message["headers"]).get(b"content-type", b"")
                streams = bytes(kind).startswith(STREAM)
            elif message.get("body"):
                events += 1
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                streams = False  # it has its end

        try:
            await self._app(scope, receive, watched)
        except Exception:
            if not streams:
                raise
            known = reasons[0] if reasons else None
            status = SERVER_ERROR if known is None else int(known.status_code)
            said = FAILED if known is None else str(known)
            await send({"type": "http.response.body", "body": last_event(status, said, events)})
            if known is None:  # for the log
                raise


def last_event(status: int, message: str, number: int) -> bytes:
    """An error as OpenAI's event.

    Its reference has the fields at the top; its API sends them in ``error``, by which its clients
    raise.
    """
    error = {"type": kind(status), "code": str(status), "message": message, "param": None}
    event = {**error, "type": "error", "sequence_number": number, "error": error}
    return b"event: error\ndata: " + json.dumps(event).encode() + b"\n\n"
