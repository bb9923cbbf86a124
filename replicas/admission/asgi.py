"""ASGI helpers of the middlewares: replayed messages, whole answers."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from replicas.admission.answers import Answer

BODY = "brimful.body"  # key of an ASGI scope: the ``Body`` that the auth middleware has read
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

# Answers to this context's request, for errors that lose their reason on the way: vLLM and
# Starlette raise another error instead.
reasons: ContextVar[list[Answer] | None] = ContextVar("brimful_reasons", default=None)


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body, read and parsed once for the auth middleware and admission.

    Args:
        fields: of the JSON object; empty if the body is none, which the app refuses.
    """

    fields: Mapping[str, Any]
    size_bytes: int


async def send_answer(answer: Answer, send: Send) -> None:
    """Send ``answer`` as a whole HTTP answer."""
    body = json.dumps(answer.body).encode()
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **answer.headers,
    }
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})


def replayed(messages: list[Message], receive: Receive) -> Receive:
    """A ``receive`` that gives these messages first, then new ones."""

    async def read() -> Message:
        return messages.pop(0) if messages else await receive()

    return read
