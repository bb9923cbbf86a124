"""A collector of OpenTelemetry spans, by OTLP over HTTP, for tests."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

ENV = {
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    "OTEL_BSP_SCHEDULE_DELAY": "100",  # ms; nobody wants to wait five seconds
}


@dataclass(frozen=True)
class Span:
    """One span; ids are hexadecimal, ``parent`` is empty for the first of a trace."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]


class Collector:
    """What has come so far, in ``spans``."""

    def __init__(self, port: int) -> None:
        self.spans: list[Span] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def of(self, trace: str) -> dict[str, Span]:
        """The spans of one trace by their names."""
        return {span.name: span for span in self.spans if span.trace == trace}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.spans += _spans(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        return Handler


def _spans(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for one in scope.spans:
                values = {pair.key: pair.value for pair in one.attributes}
                yield Span(
                    one.name,
                    one.trace_id.hex(),
                    one.span_id.hex(),
                    one.parent_span_id.hex(),
                    {k: getattr(v, str(v.WhichOneof("value"))) for k, v in values.items()},
                )


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """A collector at this port of the machine (0: any free one), until the context ends."""
    collector = Collector(port)
    thread = threading.Thread(target=collector.server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        collector.server.server_close()
        thread.join()
