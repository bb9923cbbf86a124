"""ASGI helpers of the middlewares: replayed messages, whole answers."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from replicas.admission.answers import Answer

# Key of an ASGI scope: the fields of the JSON body, which the auth middleware has read once for
# itself and admission; empty if it is no object, which the app refuses.
FIELDS = "brimful.fields"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

# Answers to this context's request, for errors that lose their reason on the way: vLLM and
# Starlette raise another error instead.
reasons: ContextVar[list[Answer] | None] = ContextVar("brimful_reasons", default=None)


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
