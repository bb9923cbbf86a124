"""Streams that the end of a drain would cut end with an event that says so.

Ray Serve kills a replica that still serves ``graceful_shutdown_timeout_s`` after it was told to
stop, without a word to it: a client would see a connection that breaks in the middle of an answer.
"""

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

from ray.serve._private.constants import (
    RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S,
    RAY_SERVE_ENABLE_DIRECT_INGRESS,
)
from ray.serve._private.replica import Replica
from starlette._utils import get_route_path
from vllm.exceptions import GenerationError

from replicas.admission.answers import no_replica
from replicas.admission.anthropics import error_event, is_messages
from replicas.admission.asgi import App, Message, Receive, Send, send_answer
from replicas.workarounds.stream_ends import PATH, STREAM, last_event

LEFT_S = 3.0  # before it is killed, for the last events to be sent; of a short drain a quarter
SAID = "the replica that served this request had to end before it did; it can be sent again"
UNAVAILABLE = 503


class LastWords:
    """The answers of one replica that are open."""

    def __init__(self) -> None:
        self.open: set[_Answer] = set()

    def drain(self, budget_s: float) -> None:
        """The replica was told to stop, and is killed so many seconds from now."""
        asyncio.get_running_loop().call_later(budget_s - min(LEFT_S, budget_s / 4), self.say)

    def say(self) -> None:
        """End every open answer now."""
        for answer in tuple(self.open):
            asyncio.run_coroutine_threadsafe(answer.end(), answer.loop)


class LastWordsMiddleware:
    """ASGI middleware, outside of those that may hold a chunk."""

    def __init__(self, app: App, words: LastWords) -> None:
        self._app, self._words = app, words

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, get_route_path(scope))
        self._words.open.add(answer)
        try:
            await self._app(scope, receive, answer.send)
        finally:
            self._words.open.discard(answer)


class _Answer:
    """One request's answer.

    Args:
        path: of its request, without the application's prefix.
    """

    def __init__(self, send: Send, path: str) -> None:
        self.loop = asyncio.get_running_loop()
        self._send, self._path = send, path
        self._started = self._streams = self._over = False
        self._sent = 0

    async def send(self, message: Message) -> None:
        if self._over:  # what still comes is for nobody
            return
        if message["type"] == "http.response.start":
            self._started = True
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._streams = bytes(kind).startswith(STREAM)
        elif message["type"] == "http.response.body":
            self._sent += bool(message.get("body"))
            self._over = not message.get("more_body")
        await self._send(message)

    async def end(self) -> None:
        """Say that no more comes; of half an answer that is no stream nothing can be said."""
        if self._over or (self._started and not self._streams):
            return
        self._over = True
        if not self._started:
            await send_answer(no_replica(SAID, random.random()), self._send)
            return
        if is_messages(self._path):
            body = error_event(UNAVAILABLE, SAID)
        elif self._path.rstrip("/").endswith(PATH):
            body = last_event(GenerationError(SAID), self._sent)
        else:
            body = error_frame(UNAVAILABLE, SAID)
        await self._send({"type": "http.response.body", "body": body})


def error_frame(status: int, message: str) -> bytes:
    """An error as the last event of a stream, as vLLM has them."""
    error = {"message": message, "type": "service_unavailable", "param": None, "code": status}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\ndata: [DONE]\n\n"


def before_shutdown(tell: Callable[[float], None]) -> None:
    """Have the replica of this process tell how many seconds its drain may take, as it begins."""
    drain = Replica._perform_graceful_shutdown

    async def told(replica: Any) -> None:
        tell(drain_s(replica))
        await drain(replica)

    Replica._perform_graceful_shutdown = told


def drain_s(replica: Any) -> float:
    """After how many seconds Ray Serve's controller kills a replica that it told to stop."""
    given = float(replica._deployment_config.graceful_shutdown_timeout_s)
    if replica._ingress and RAY_SERVE_ENABLE_DIRECT_INGRESS:
        return max(given, RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S)
    return given
