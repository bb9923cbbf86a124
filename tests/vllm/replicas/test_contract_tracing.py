"""What our spans rely on in vLLM and Ray Serve, which is not part of their interfaces."""

import pytest
from opentelemetry.sdk.trace import SpanProcessor
from ray.serve._private import tracing_utils as rays

from replicas.server.otlp import exporter


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_ray_serve_takes_our_exporter(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    rays._validate_tracing_exporter(exporter)
    (processor,) = made = exporter()
    rays._validate_tracing_exporter_processors(made)
    assert isinstance(processor, SpanProcessor)
    assert f".{protocol.partition('/')[0]}." in type(processor.span_exporter).__module__
    processor.shutdown()
