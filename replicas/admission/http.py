"""Admission in front of vLLM's own app.

The answer's status is held back until its first byte. Until then a refusal, a timeout or a dead
engine has its own status, and is never an error frame in a 200.
"""

import json
import random
from contextlib import AbstractContextManager
from typing import Any, Protocol

from replicas.admission import api_errors
from replicas.admission.answers import SERVER_ERROR, Answer, RefusedError, no_replica
from replicas.admission.asgi import FIELDS, App, Message, Receive, Send, send_answer
from replicas.admission.asked import NO_FAILOVER, TIER
from replicas.admission.gate import Gate, Ticket, current, ends_with_engine

# Paths of requests that wait for the engine's first token.
GENERATES = ("/completions", "/responses", "/messages", "/generate", "/invocations")
ECHOES = ("/completions", "/responses")  # paths of answers with a service_tier
ERROR_FRAME = b'data: {"error"'
ERROR_FRAMES = (ERROR_FRAME, b"event: error\n")
ANNOUNCING = (b"event: response.created\n", b"event: response.in_progress\n")  # before a token
DEAD = "Not served: the engine failed before the first token."
PREDICTED = b"x-brimful-predicted-wait-ms"  # to the first token, from admission


class Traces(Protocol):
    """Makes a span for each request (``replicas.server.tracing``)."""

    def request(self, scope: Any, send: Send) -> AbstractContextManager[Send]: ...


class AdmissionMiddleware:
    """ASGI middleware inside the auth middleware, which has read the body.

    Args:
        client: vLLM's ``AsyncLLM``.
        gate: None: no request is refused. An answer is held all the same: if the engine dies, a
            waiting request is told to come again. If the replica is killed, the client has no byte
            yet, so HAProxy sends the request to another replica.
        traces: None: no spans.
    """

    def __init__(
        self, app: App, client: Any, gate: Gate | None = None, traces: Traces | None = None
    ) -> None:
        self._app, self._client, self._gate, self._traces = app, client, gate, traces

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._traces is not None and scope["method"] == "POST":
            with self._traces.request(scope, send) as noting:
                await self._admit(scope, receive, noting)
        else:
            await self._admit(scope, receive, send)

    async def _admit(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        try:
            # Without fields if the client left before the body's end.
            fields = scope.get(FIELDS, {})
            ticket = None if self._gate is None else self._gate.ticket(headers, fields)
        except RefusedError as refused:
            await send_answer(refused.answer, send)
            return
        if NO_FAILOVER in scope["headers"]:
            ends_with_engine.set(True)
        path, echo = scope["path"].rstrip("/"), None
        if ticket is not None:
            current.set(ticket)
            if path.endswith(GENERATES) and (answer := ticket.refused_early()) is not None:
                await send_answer(answer, send)
                return
            echo = ticket.asked.name if ticket.asked.named and path.endswith(ECHOES) else None
        held = _HeldAnswer(self._client, ticket, send, echo)
        try:
            await self._app(scope, receive, held.send)
            await held.flush()
        except Exception:
            told = await held.refused()
            # After vLLM has announced an answer it fails over a refusal; all other errors are
            # logged.
            if told is None or told.reason == "engine_failed":
                raise
        finally:
            if ticket is not None:
                ticket.close()


class _HeldAnswer:
    """Sends an answer, with its start held until the first byte.

    Args:
        client: vLLM's ``AsyncLLM``.
        ticket: None: no request is refused.
        echo: the class to name in the answer; None: none.
    """

    def __init__(self, client: Any, ticket: Ticket | None, send: Send, echo: str | None) -> None:
        self._client, self._ticket, self._send, self._echo = client, ticket, send, echo
        self._start: Message | None = None
        self._announced = b""  # events of a stream before its first token
        self._whole: bytes | None = None  # of a JSON answer to be changed
        self._over = False  # another answer has been sent

    async def send(self, message: Message) -> None:
        if self._over:
            return
        if message["type"] == "http.response.start":
            self._start = message
            return
        if self._start is None or message["type"] != "http.response.body":
            await self._send(message)
            return
        body: bytes = message.get("body", b"")
        instead = self._instead(self._start["status"], body)
        if instead is not None:
            self._over = True
            await send_answer(instead, self._send)
            return
        if not body and message.get("more_body"):
            return  # nothing to send yet
        if message.get("more_body") and _announces(body):
            self._announced += body
            return
        if self._announced:
            message = {**message, "body": self._announced + body}
            self._announced = b""
        if self._echo and self._start["status"] == 200:
            if self._is("application/json"):
                self._whole = (self._whole or b"") + body
                if message.get("more_body"):
                    return
                message = {**message, "body": self._with_class(self._whole)}
            elif self._is("text/event-stream"):
                message = {**message, "body": with_class(body, self._echo)}
        start, self._start = self._start, None
        await self._send({**start, "headers": [*start["headers"], *self._predicted()]})
        await self._send(message)

    async def flush(self) -> None:
        """The app is done; send a start without a body."""
        if self._start is not None and not self._over:
            await self._send(self._start)
            if self._announced:
                await self._send({"type": "http.response.body", "body": self._announced})

    async def refused(self) -> Answer | None:
        """The app failed: its refusal, if any, or the answer for a dead engine.

        It is sent if nothing of the app's answer was.
        """
        if self._start is not None and not self._over:
            instead = self._refusal
            if instead is None and self._client.errored:
                instead = self._failed()
            if instead is not None:
                self._over = True
                await send_answer(instead, self._send)
        return self._refusal if self._over else None

    def _instead(self, status: int, body: bytes) -> Answer | None:
        """What to send instead of an answer that has not begun; None: that answer."""
        if self._refusal is not None:
            return self._refusal
        if status == 200 and body.startswith(ERROR_FRAMES):
            status, message, param = _error_in(body)
            if status < SERVER_ERROR:
                return Answer(status, "bad_request", message, param=param)
        elif status < SERVER_ERROR or not self._client.errored:
            return None
        return self._failed()

    @property
    def _refusal(self) -> Answer | None:
        return None if self._ticket is None else self._ticket.answer

    def _failed(self) -> Answer:
        if self._ticket is None:
            return no_replica(DEAD, random.random(), "engine_failed")
        return self._ticket.failed()

    def _predicted(self) -> list[tuple[bytes, bytes]]:
        """The predicted wait, for the client to compare."""
        predicted_s = None if self._ticket is None else self._ticket.predicted_s
        return [] if predicted_s is None else [(PREDICTED, str(round(predicted_s * 1000)).encode())]

    def _is(self, kind: str) -> bool:
        assert self._start is not None
        headers = dict(self._start["headers"])
        return bytes(headers.get(b"content-type", b"")).startswith(kind.encode())

    def _with_class(self, body: bytes) -> bytes:
        assert self._start is not None
        try:
            answer = json.loads(body)
        except ValueError:
            return body
        if isinstance(answer, dict):
            body = json.dumps({**answer, TIER: self._echo}, ensure_ascii=False).encode()
            length = (b"content-length", str(len(body)).encode())
            others = [h for h in self._start["headers"] if h[0].lower() != length[0]]
            self._start = {**self._start, "headers": [*others, length]}
        return body


def _announces(body: bytes) -> bool:
    """Whether a part of a stream only announces an answer."""
    events = [event for event in body.split(b"\n\n") if event]
    return bool(events) and all(event.startswith(ANNOUNCING) for event in events)


def _error_in(body: bytes) -> tuple[int, str, str | None]:
    """Status, message and field of an error that begins a stream of any of the APIs."""
    event = json.loads(body.partition(b"data: ")[2].partition(b"\n")[0])
    error = event.get("error", event)
    status = error.get("code") or api_errors.STATUS.get(error.get("type"), SERVER_ERROR)
    return int(status), str(error["message"]), error.get("param")


def with_class(frames: bytes, name: str) -> bytes:
    """Server-sent events whose first one names the class that was served."""
    begin = b"data: {"
    if not frames.startswith(begin):
        return frames
    return begin + f'"{TIER}":{json.dumps(name)},'.encode() + frames[len(begin) :]
