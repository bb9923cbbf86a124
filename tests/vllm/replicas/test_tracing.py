"""Our span of a request: in whose trace it is, what it says, and what it never says."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ray.llm._internal.serve.core.configs.openai_api_models import CompletionRequest
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from vllm.sampling_params import SamplingParams

from replicas.server.plain_calls import AdmittingEngine
from replicas.server.tracing import Tracing
from tests.vllm.replicas.stand_in import PROMPT, Engine, app_of, before, client_of, gate_of

TRACE, CLIENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{CLIENT}-01", "tracestate": "shop=1"}
SECRET = "heliotrope zanzibar"
ASK = {"model": "m", "prompt": SECRET}


class Output(str):
    """What the engine hands out, with vLLM's times: 2 s in the queue, 3 s to the first token."""

    metrics = SimpleNamespace(queued_ts=10.0, scheduled_ts=12.0, first_token_latency=3.0)


async def outputs() -> AsyncIterator[str]:
    for one in "abc":
        yield Output(one)


class Stack:
    """An app behind admission and tracing, as a replica has it."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.engine = Engine()
        self.engine.outputs = outputs
        self.report: Any = SimpleNamespace(
            max_running=48, reason="sla", running=40, waiting=7, enforced=True
        )
        tracer = self.provider.get_tracer("test")
        self.tracing = Tracing(tracer, "r1", lambda: self.report)
        self.tracing.watch(self.engine)
        self.gate = gate_of(self.engine)
        self.seen: list[dict[str, str]] = []  # headers as the app got them

        async def app(scope: Any, receive: Any, send: Any) -> None:
            self.seen.append({k.decode(): v.decode() for k, v in scope["headers"]})
            await app_of(self.engine)(scope, receive, send)

        self.app = before(app, self.engine, self.gate, self.tracing)

    async def ask(self, headers: dict[str, str] = HEADERS, **more: Any) -> httpx.Response:
        async with client_of(self.app) as client:
            # A task of its own for each request, as servers do it.
            call = client.post("/v1/completions", json={**ASK, **more}, headers=headers)
            return await asyncio.create_task(call)

    @property
    def span(self) -> ReadableSpan:
        (one,) = self.exporter.get_finished_spans()
        return one

    @property
    def said(self) -> dict[str, Any]:
        return dict(self.span.attributes or {})


@pytest.fixture
def stack() -> Stack:
    return Stack()


def hexadecimal(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


@pytest.mark.parametrize("stream", [False, True])
async def test_it_stands_between_the_clients_span_and_vllms(stack: Stack, stream: bool) -> None:
    assert (await stack.ask(stream=stream)).status_code == 200
    trace_id, span_id = hexadecimal(stack.span)
    assert (trace_id, f"{stack.span.parent.span_id:016x}") == (TRACE, CLIENT)
    (seen,) = stack.seen
    assert seen["traceparent"] == f"00-{TRACE}-{span_id}-01"
    assert seen["tracestate"] == "shop=1"


async def test_it_says_what_was_decided(stack: Stack) -> None:
    await stack.ask(service_tier="batch")
    assert stack.said == {
        "brimful.replica": "r1",
        "brimful.cap": 48,
        "brimful.cap_set_by": "sla",
        "brimful.running": 40,
        "brimful.waiting": 7,
        "brimful.enforced": True,
        "brimful.admitted": True,
        "brimful.class": "batch",
        "brimful.queue_s": 2.0,
        "brimful.first_token_s": 3.0,
        "http.response.status_code": 200,
    }


async def test_neither_prompt_nor_header_is_in_it(stack: Stack) -> None:
    await stack.ask({**HEADERS, "x-mine": SECRET}, service_tier=SECRET)
    await stack.ask(user=SECRET)
    for span in stack.exporter.get_finished_spans():
        assert SECRET not in span.to_json()


async def test_through_rays_own_ingress_it_stands_there_too(stack, monkeypatch) -> None:
    seen: list[dict[str, str]] = []

    async def completions(_: Any, request: Any, info: RawRequestInfo) -> AsyncIterator[str]:
        seen.append(info.headers)
        async for output in stack.engine.generate(PROMPT, SamplingParams(), "r"):
            yield f'data: {{"text": "{output}"}}\n\n'

    monkeypatch.setattr(VLLMEngine, "completions", completions)
    engine = object.__new__(AdmittingEngine)
    engine.gate, engine.tracing = stack.gate, stack.tracing
    request = CompletionRequest(model="m", prompt=SECRET, stream=True)
    info = RawRequestInfo(headers={"Traceparent": HEADERS["traceparent"], "x-other": "1"})
    assert len([item async for item in engine.completions(request, info)]) == 3
    _, span_id = hexadecimal(stack.span)
    assert seen == [{"x-other": "1", "traceparent": f"00-{TRACE}-{span_id}-01"}]
