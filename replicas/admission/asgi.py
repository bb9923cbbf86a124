"""What the middlewares share of ASGI: messages read again, an answer sent whole."""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from replicas.admission.answers import Answer

BODY = "brimful.body"  # where an ASGI scope has the ``Body`` that the door has read
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]

# How the request of this context is to be answered, where what says so is lost on its way out:
# vLLM and Starlette raise another error in place of the one that ended it.
reasons: ContextVar[list[Answer] | None] = ContextVar("brimful_reasons", default=None)


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body, read and parsed once for the door and for admission.

    Args:
        fields: of the JSON object; empty if it is none, which the app refuses.
    """

    fields: Mapping[str, Any]
    size_bytes: int


async def send_answer(answer: Answer, send: Send) -> None:
    """Send it as a whole HTTP answer."""
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
    """What reads these messages first, and then what comes."""

    async def read() -> Message:
        return messages.pop(0) if messages else await receive()

    return read
