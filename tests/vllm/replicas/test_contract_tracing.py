"""What our spans rely on in vLLM and Ray Serve, which is not part of their interfaces."""

import inspect

import pytest
from opentelemetry.sdk.trace import SpanProcessor
from ray.serve._private import tracing_utils as rays
from ray.serve._private.replica import Replica
from vllm.config.observability import ObservabilityConfig
from vllm.entrypoints.generate.base.serving import GenerateBaseServing
from vllm.outputs import RequestOutput
from vllm.tracing import otel
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import OutputProcessor, RequestState
from vllm.v1.metrics.stats import RequestStateStats

from replicas.server.otlp import exporter
from replicas.server.tracing import CARRIED


def test_vllm_takes_its_parent_from_the_requests_headers() -> None:
    headers = inspect.getsource(GenerateBaseServing._get_trace_headers)
    assert "extract_trace_headers(headers)" in headers
    assert set(CARRIED) == set(otel.TRACE_HEADERS)
    spans = inspect.getsource(OutputProcessor.do_tracing)
    assert "extract_trace_context(engine_core_output.trace_headers)" in spans
    assert 'span_name="llm_request"' in spans


def test_it_traces_where_the_endpoint_says_and_needs_its_stats() -> None:
    assert ObservabilityConfig().otlp_traces_endpoint is None
    assert "self.observability_config = " in inspect.getsource(AsyncLLM.__init__)
    # Why disable_log_stats is refused beside it.
    assert "assert req_state.stats is not None" in inspect.getsource(OutputProcessor.do_tracing)


def test_every_output_has_the_times_of_its_request() -> None:
    assert "metrics" in inspect.signature(RequestOutput).parameters
    assert "metrics=self.stats" in inspect.getsource(RequestState._new_request_output)
    known = RequestStateStats.__dataclass_fields__.keys()
    assert {"queued_ts", "scheduled_ts", "first_token_latency"} <= known


def test_one_provider_serves_all_whoever_made_it_first() -> None:
    assert "set_tracer_provider(trace_provider)" in inspect.getsource(otel.init_otel_tracer)
    assert "trace.get_tracer(__name__)" in inspect.getsource(otel.manual_instrument_otel)
    assert "trace.set_tracer_provider(" in inspect.getsource(rays.setup_tracing)


def test_ray_serves_span_is_the_current_one_in_a_replica() -> None:
    assert "set_trace_context(new_ctx)" in inspect.getsource(rays.TraceContextManager.__enter__)
    assert "extract_propagated_context(" in inspect.getsource(Replica._tracing_context)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_ray_serve_takes_our_exporter(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol)
    rays._validate_tracing_exporter(exporter)
    (processor,) = made = exporter()
    rays._validate_tracing_exporter_processors(made)
    assert isinstance(processor, SpanProcessor)
    assert f".{protocol.partition('/')[0]}." in type(processor.span_exporter).__module__
    processor.shutdown()
