"""How an answer ends, for every cause: the app, a failure, its client, a clock or a drain.

Ray Serve kills a replica that still serves ``graceful_shutdown_timeout_s`` after it was told to
stop, and ends a request whose time is up, both silently: a client would see a broken connection in
the middle of an answer. vLLM 0.29 breaks off a stream of ``/v1/responses`` on every error
(docs/upstream/vllm-grammar-errors.md).

Ray Serve also cancels the task of a request whose client left. vLLM runs a handler in its own task
and another that waits for ``http.disconnect``; cancelling the wait ends neither, so the answer
would be computed to its end without a reader
(docs/upstream/ray-serve-direct-ingress-disconnects.md). So the app has its own task here.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

from ray.serve._private.constants import (
    RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S,
    RAY_SERVE_ENABLE_DIRECT_INGRESS,
)
from ray.serve._private.replica import Replica
from starlette._utils import get_route_path

from replicas.admission.answers import CLIENT_ERROR, SERVER_ERROR, Answer, cut, no_replica
from replicas.admission.api_errors import as_anthropics, is_messages, last_event
from replicas.admission.asgi import App, Message, Receive, Send, reasons, send_answer
from replicas.server.answer_clocks import AnswerClocks
from replicas.server.egress import LeavingTokens, StreamGaps

STREAM = b"text/event-stream"
FAILED = "Internal server error"  # clients get no details
LEFT: Message = {"type": "http.disconnect"}
ENDS_BY_ITSELF_S = 1.0  # time for an app to stop after a disconnect, before it is cancelled
BEFORE_KILLED_S = 3.0  # for the last events to be sent; a quarter of a short drain
SAID = "the replica that served this request had to end before it did; it can be sent again"


class OpenAnswers:
    """The open answers of one replica.

    Args:
        clocks: they end answers; None: none.
    """

    def __init__(self, clocks: AnswerClocks | None = None) -> None:
        self.clocks = clocks or AnswerClocks()
        self.open: set[_Answer] = set()

    def drain(self, budget_s: float) -> None:
        """The replica was told to stop, and will be killed in ``budget_s`` seconds."""
        after_s = budget_s - min(BEFORE_KILLED_S, budget_s / 4)
        asyncio.get_running_loop().call_later(after_s, self.end)

    def end(self) -> None:
        """End every open answer now."""
        for answer in tuple(self.open):
            gone = no_replica(SAID, random.random())
            asyncio.run_coroutine_threadsafe(answer.end(gone), answer.loop)


class StreamEndMiddleware:
    """ASGI middleware, outside of all others.

    Args:
        leaving: counts the gaps between tokens; None: another process does.
        ends_by_itself_s: time for an app to stop after a disconnect, before it is cancelled.
    """

    def __init__(
        self,
        app: App,
        answers: OpenAnswers,
        leaving: LeavingTokens | None = None,
        ends_by_itself_s: float = ENDS_BY_ITSELF_S,
    ) -> None:
        self._app, self._answers, self._leaving = app, answers, leaving
        self._ends_by_itself_s = ends_by_itself_s
        self._running: set[asyncio.Task[None]] = set()  # asyncio holds tasks weakly

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = get_route_path(scope)
        if is_messages(path):
            send = _AnthropicErrors(send).send
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        answer = _Answer(path, receive, send, self._leaving)
        limit = self._answers.clocks.limit(dict(scope["headers"]))
        known: list[Answer] = []
        reasons.set(known)
        task = asyncio.ensure_future(self._app(scope, answer.receive, answer.send))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        self._answers.open.add(answer)
        try:
            await asyncio.wait((task,), timeout=limit and limit.after_s)
        finally:
            self._answers.open.discard(answer)
            if not task.done():
                answer.left.set()
                task.add_done_callback(_forget)
                answer.loop.call_later(self._ends_by_itself_s, task.cancel)
        if not task.done():
            assert limit is not None
            await answer.end(cut(limit.said))
        elif (error := task.exception()) is not None:
            await answer.end(known[0] if known else Answer(SERVER_ERROR, "engine_failed", FAILED))
            if not known:  # for the log
                raise error


class _Answer:
    """One request's answer, and the app's view of the client.

    Args:
        path: of its request, without the application's prefix.

    Attributes:
        left: set once no client waits for it.
    """

    def __init__(
        self, path: str, receive: Receive, send: Send, leaving: LeavingTokens | None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.left = asyncio.Event()
        self._path, self._receive, self._send = path, receive, send
        self._gaps = None if leaving is None else StreamGaps(leaving)
        self._started = self._streams = self._over = False
        self._events = 0

    async def receive(self) -> Message:
        """The next message; a disconnect once no client waits."""
        if self.left.is_set():
            return LEFT
        message = asyncio.ensure_future(self._receive())
        left = asyncio.ensure_future(self.left.wait())
        try:
            await asyncio.wait((message, left), return_when=asyncio.FIRST_COMPLETED)
            return LEFT if self.left.is_set() else message.result()
        finally:
            for one in (message, left):
                one.cancel()

    async def send(self, message: Message) -> None:
        if self._over or self.left.is_set():  # it has no reader any more
            return
        token = False
        if message["type"] == "http.response.start":
            self._started = True
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._streams = bytes(kind).startswith(STREAM)
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            self._events += body.count(b"\n\n")
            self._over = not message.get("more_body")
            token = self._gaps is not None and not self._over and self._gaps.leave(body)
        await self._send(message)
        if token and self._gaps is not None:
            self._gaps.have_left()

    async def end(self, instead: Answer) -> None:
        """Tell the client that no more comes; possible only before the answer, or in a stream."""
        if self._over or (self._started and not self._streams):
            return
        self._over = True
        self.left.set()
        if not self._started:
            await send_answer(instead, self._send)
            return
        body = last_event(self._path, instead, self._events)
        await self._send({"type": "http.response.body", "body": body})


class _AnthropicErrors:
    """Sends an answer, with errors in the shape of Anthropic's API.

    The middlewares answer in OpenAI's shape, and so does vLLM's app if it refuses a request before
    its handler; the handler's own errors have vLLM's types.
    """

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
        body = as_anthropics(start["status"], self._body)
        headers = [h for h in start["headers"] if h[0].lower() != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._send({**start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _forget(task: "asyncio.Task[None]") -> None:
    """Ignore how an app ends once no client waits."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()


def before_shutdown(tell: Callable[[float], None]) -> None:
    """Have the replica of this process call ``tell`` with the seconds of its drain as it begins."""
    drain = Replica._perform_graceful_shutdown

    async def told(replica: Any) -> None:
        tell(drain_s(replica))
        await drain(replica)

    Replica._perform_graceful_shutdown = told


def drain_s(replica: Any) -> float:
    """Seconds until Ray Serve's controller kills a replica that it told to stop."""
    given = float(replica._deployment_config.graceful_shutdown_timeout_s)
    if replica._ingress and RAY_SERVE_ENABLE_DIRECT_INGRESS:
        return max(given, RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S)
    return given
