"""Streams that are cut end with an event that says so: by a drain, by a clock, by a failure.

Ray Serve kills a replica that still serves ``graceful_shutdown_timeout_s`` after it was told to
stop, without a word to it, and ends a request whose time is up: a client would see a connection
that breaks in the middle of an answer.
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

from replicas.admission.answers import SERVER_ERROR, Answer, cut, no_replica
from replicas.admission.anthropics import error_event, is_messages
from replicas.admission.asgi import App, Message, Receive, Send, send_answer
from replicas.server.answer_clocks import AnswerClocks
from replicas.workarounds.stream_ends import FAILED, PATH, STREAM, last_event

LEFT_S = 3.0  # before it is killed, for the last events to be sent; of a short drain a quarter
SAID = "the replica that served this request had to end before it did; it can be sent again"


class LastWords:
    """The answers of one replica that are open.

    Args:
        clocks: by which they are ended; None: there are none.
    """

    def __init__(self, clocks: AnswerClocks | None = None) -> None:
        self.clocks = clocks or AnswerClocks()
        self.open: set[_Answer] = set()

    def drain(self, budget_s: float) -> None:
        """The replica was told to stop, and is killed so many seconds from now."""
        asyncio.get_running_loop().call_later(budget_s - min(LEFT_S, budget_s / 4), self.say)

    def say(self) -> None:
        """End every open answer now."""
        for answer in tuple(self.open):
            gone = no_replica(SAID, random.random())
            asyncio.run_coroutine_threadsafe(answer.end(gone), answer.loop)


class LastWordsMiddleware:
    """ASGI middleware, outside of those that may hold a chunk, or that tell of a disconnect."""

    def __init__(self, app: App, words: LastWords) -> None:
        self._app, self._words = app, words

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, get_route_path(scope))
        limit = self._words.clocks.limit(dict(scope["headers"]))
        self._words.open.add(answer)
        try:
            async with asyncio.timeout(limit and limit.after_s) as clock:
                await self._app(scope, receive, answer.send)
        except Exception:
            if limit is not None and clock.expired():
                await answer.end(cut(limit.said))
                return
            if answer.started:
                await answer.end(Answer(SERVER_ERROR, "engine_failed", FAILED))
            raise
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
        self.started = self._streams = self._over = False
        self._sent = 0

    async def send(self, message: Message) -> None:
        if self._over:  # what still comes is for nobody
            return
        if message["type"] == "http.response.start":
            self.started = True
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._streams = bytes(kind).startswith(STREAM)
        elif message["type"] == "http.response.body":
            self._sent += bool(message.get("body"))
            self._over = not message.get("more_body")
        await self._send(message)

    async def end(self, instead: Answer) -> None:
        """Say that no more comes; of half an answer that is no stream nothing can be said."""
        if self._over or (self.started and not self._streams):
            return
        self._over = True
        if not self.started:
            await send_answer(instead, self._send)
            return
        status, message = instead.status, instead.message
        if is_messages(self._path):
            body = error_event(status, message)
        elif self._path.rstrip("/").endswith(PATH):
            body = last_event(status, message, self._sent)
        else:
            body = error_frame(instead)
        await self._send({"type": "http.response.body", "body": body})


def error_frame(answer: Answer) -> bytes:
    """An error as the last event of a stream, as vLLM has them."""
    return b"data: " + json.dumps(answer.body).encode() + b"\n\ndata: [DONE]\n\n"


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
