"""A span for each request, with Brimful's decisions, between the client's span and vLLM's.

vLLM traces if ``engine_kwargs.otlp_traces_endpoint`` names a collector; then these spans go through
the same provider, vLLM's or Ray Serve's. Otherwise nothing of this runs. No attribute holds
anything from a client except the name of a configured class.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from controller.records import EngineReport
from replicas.admission.answers import SERVER_ERROR
from replicas.admission.asgi import Message, Send
from replicas.admission.gate import Ticket, current

NAME = "brimful.request"
CARRIED = ("traceparent", "tracestate")  # W3C's headers for a trace
REASON = b"x-brimful-reason"  # of a refusal
LEFT = (asyncio.CancelledError, GeneratorExit)  # how a request ends if its client is gone


class TracedRequest:
    """One request's span.

    Attributes:
        headers: make the next span a child of this one.
        admitted: whether the engine got one of its prompts.
        status, reason: of its answer, once that has begun.
        whole: whether the end of its answer was sent.
    """

    def __init__(self, span: Span) -> None:
        self._span = span
        self.headers: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(self.headers, trace.set_span_in_context(span))
        self.sampled = span.is_recording()
        self.admitted = self.whole = False
        self.status: int | None = None
        self.reason: str | None = None
        self._queue_s: float | None = None
        self._first_token_s: float | None = None

    def started(self, stats: Any) -> None:
        """One of its prompts has its first token; of several, the slowest counts.

        Args:
            stats: vLLM's ``RequestStateStats``.
        """
        queue_s = stats.scheduled_ts - stats.queued_ts
        self._queue_s = max(queue_s, self._queue_s or 0.0)
        self._first_token_s = max(stats.first_token_latency, self._first_token_s or 0.0)

    def ended(self, ticket: Ticket | None, error: BaseException | None = None) -> None:
        """The request is over.

        Args:
            ticket: None without admission, or if the request did not get there.
            error: what ended it; None: it is complete.
        """
        if not self.sampled:
            return
        if self.reason is None and ticket is not None and ticket.answer is not None:
            self.reason = ticket.answer.reason
        failed = error is not None and not isinstance(error, LEFT)
        known: dict[str, Any] = {
            "brimful.admitted": self.admitted,
            "brimful.refused": self.reason,
            "brimful.class": ticket and ticket.asked.name,
            "brimful.predicted_wait_s": ticket and ticket.predicted_s,
            "brimful.queue_s": self._queue_s,
            "brimful.first_token_s": self._first_token_s,
            "brimful.client_left": (not self.whole and not failed) or None,
            "http.response.status_code": self.status,
        }
        self._span.set_attributes({k: value for k, value in known.items() if value is not None})
        if failed or (self.status or 0) >= SERVER_ERROR:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


_traced: ContextVar[TracedRequest | None] = ContextVar("brimful_traced", default=None)


class Tracing:
    """One replica's spans.

    Args:
        report: gives the engine's last report; None if none is recent.
    """

    def __init__(
        self, tracer: Tracer, replica_id: str, report: Callable[[], EngineReport | None]
    ) -> None:
        self._tracer, self._replica_id, self._report = tracer, replica_id, report

    @contextmanager
    def request(self, scope: Any, send: Send) -> Iterator[Send]:
        """The span of a POST from the auth middleware on; requests refused there have none.

        Returns:
            The ``send`` for its answer.
        """
        headers = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]]
        with self.span({k: v for k, v in headers if k in CARRIED}) as traced:
            others = [pair for pair in scope["headers"] if pair[0].decode("latin-1") not in CARRIED]
            ours = [(name.encode(), value.encode()) for name, value in traced.headers.items()]
            scope["headers"] = [*others, *ours]

            async def noting(message: Message) -> None:
                if message["type"] == "http.response.start":
                    traced.status = message["status"]
                    traced.reason = _reason(message.get("headers", ()))
                await send(message)
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    traced.whole = True

            yield noting

    @contextmanager
    def span(self, headers: Mapping[str, str]) -> Iterator[TracedRequest]:
        """The span of a request: a child of Ray Serve's span if there is one, else of the client's.

        Args:
            headers: by lower-case name.
        """
        traced = self._begin(headers)
        try:
            yield traced
        except BaseException as error:
            traced.ended(current.get(), error)
            raise
        traced.ended(current.get())

    def _begin(self, headers: Mapping[str, str]) -> TracedRequest:
        above = None
        if not trace.get_current_span().get_span_context().is_valid:
            carried = {name: headers[name] for name in CARRIED if name in headers}
            above = TraceContextTextMapPropagator().extract(carried)
        span = self._tracer.start_span(NAME, above, SpanKind.SERVER)
        if span.is_recording():
            span.set_attribute("brimful.replica", self._replica_id)
            if report := self._report():
                span.set_attributes(
                    {
                        "brimful.cap": report.max_running,
                        "brimful.cap_set_by": report.reason,
                        "brimful.running": report.running,
                        "brimful.waiting": report.waiting,
                        "brimful.enforced": report.enforced,
                    }
                )
        traced = TracedRequest(span)
        _traced.set(traced if traced.sampled else None)
        return traced

    def watch(self, client: Any) -> None:
        """Note the wait of each request of this ``AsyncLLM`` in its span."""
        generate = client.generate

        def traced(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
            outputs = generate(*args, **options)
            request = _traced.get()
            return outputs if request is None else _noted(request, outputs)

        client.generate = traced


async def _noted(
    request: TracedRequest, outputs: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    request.admitted = True
    try:
        async for output in outputs:
            if output.metrics is not None:  # log_stats
                request.started(output.metrics)
            yield output
            break
        async for output in outputs:
            yield output
    finally:
        await outputs.aclose()


def _reason(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    return next((value.decode() for name, value in headers if name.lower() == REASON), None)
