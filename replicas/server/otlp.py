"""Ray Serve's spans to a collector: RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=replicas.otlp:exporter.

Separate from ``tracing``, as every process of Ray Serve imports it, and most have no vLLM.
"""

import os

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as ByGrpc
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as ByHttp
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
)
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from replicas.server.proxies import go_past


def exporter() -> list[SpanProcessor]:
    """The span processors for Ray Serve.

    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names the collector, and the variable that vLLM also reads
    its protocol: ``grpc`` or ``http/protobuf``.
    """
    go_past(os.environ.get(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, ""))
    by_http = os.environ.get(OTEL_EXPORTER_OTLP_TRACES_PROTOCOL) == "http/protobuf"
    return [BatchSpanProcessor(ByHttp() if by_http else ByGrpc())]
