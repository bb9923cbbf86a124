"""Our span of a request: in whose trace it is, what it says, and what it never says."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ray.llm._internal.serve.core.configs.openai_api_models import CompletionRequest
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from vllm.sampling_params import SamplingParams

from replicas.admission.drain import EngineView
from replicas.server.plain_calls import AdmittingEngine
from replicas.server.tracing import Tracing
from tests.vllm.replicas.stand_in import Engine, app_of, before, client_of, gate_of, never

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


async def test_who_is_refused_has_the_reason_and_no_engine(stack: Stack) -> None:
    stack.gate.admission.waiting.learn(EngineView(free_slots=0, requests_per_s=0.001))
    assert (await stack.ask()).status_code == 429
    said = stack.said
    assert (said["brimful.admitted"], said["brimful.refused"]) == (False, "deadline")
    assert said["http.response.status_code"] == 429
    assert "brimful.queue_s" not in said
    assert stack.span.status.is_ok is True


async def test_who_waits_too_long_was_admitted(stack: Stack) -> None:
    stack.engine.outputs = never
    await stack.ask({**HEADERS, "x-request-timeout-seconds": "0.05"})
    said = stack.said
    assert (said["brimful.admitted"], said["brimful.refused"]) == (True, "queue_timeout")
    assert stack.span.status.is_ok is False


async def test_bad_input_is_a_refusal_without_a_class(stack: Stack) -> None:
    await stack.ask(service_tier="platinum")
    assert stack.said["brimful.refused"] == "bad_request"
    assert "brimful.class" not in stack.said


async def test_a_client_that_left_is_no_error(stack: Stack) -> None:
    stack.engine.outputs = never
    task = asyncio.create_task(stack.ask())
    while not stack.engine.priorities:  # noqa: ASYNC110 - the stand-in tells nobody
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while not stack.exporter.get_finished_spans():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert stack.said["brimful.client_left"] is True
    assert stack.span.status.is_ok is True


async def test_of_a_trace_that_is_not_sampled_nothing_is_kept_but_its_id(stack: Stack) -> None:
    await stack.ask({"traceparent": f"00-{TRACE}-{CLIENT}-00"})
    assert stack.exporter.get_finished_spans() == ()
    version, trace_id, _, flags = stack.seen[0]["traceparent"].split("-")
    assert (version, trace_id, flags) == ("00", TRACE, "00")


@pytest.mark.parametrize("said", [{}, {"traceparent": "00-nonsense"}])
async def test_without_a_trace_one_begins_here(stack: Stack, said: dict[str, str]) -> None:
    await stack.ask(said)
    assert stack.span.parent is None
    assert stack.seen[0]["traceparent"].split("-")[1] == hexadecimal(stack.span)[0]


async def test_ray_serves_span_counts_more_than_the_header(stack: Stack) -> None:
    rays = stack.provider.get_tracer("ray").start_span("replica_handle_request")
    with trace.use_span(rays):
        await stack.ask()
    assert stack.span.parent.span_id == rays.get_span_context().span_id


async def test_neither_prompt_nor_header_is_in_it(stack: Stack) -> None:
    await stack.ask({**HEADERS, "x-mine": SECRET}, service_tier=SECRET)
    await stack.ask(user=SECRET)
    for span in stack.exporter.get_finished_spans():
        assert SECRET not in span.to_json()


async def test_a_report_that_is_too_old_is_left_out(stack: Stack) -> None:
    stack.report = None
    await stack.ask()
    assert "brimful.cap" not in stack.said


@pytest.mark.parametrize("admission", [True, False])
async def test_through_rays_own_ingress_it_stands_there_too(stack, monkeypatch, admission):
    seen: list[dict[str, str]] = []

    async def completions(_: Any, request: Any, info: RawRequestInfo) -> AsyncIterator[str]:
        seen.append(info.headers)
        async for output in stack.engine.generate({"prompt_token_ids": [1]}, SamplingParams(), "r"):
            yield f'data: {{"text": "{output}"}}\n\n'

    monkeypatch.setattr(VLLMEngine, "completions", completions)
    engine = object.__new__(AdmittingEngine)
    engine.gate, engine.tracing = stack.gate if admission else None, stack.tracing
    request = CompletionRequest(model="m", prompt=SECRET, stream=True, service_tier="batch")
    info = RawRequestInfo(headers={"Traceparent": HEADERS["traceparent"], "x-other": "1"})

    async def call() -> list[Any]:
        return [item async for item in engine.completions(request, info)]

    items = await asyncio.create_task(call())
    assert len(items) == 3
    trace_id, span_id = hexadecimal(stack.span)
    assert trace_id == TRACE
    assert seen == [{"x-other": "1", "traceparent": f"00-{TRACE}-{span_id}-01"}]
    assert stack.said["brimful.admitted"] is True
    assert stack.said.get("brimful.class") == ("batch" if admission else None)
    assert "brimful.client_left" not in stack.said
    assert SECRET not in stack.span.to_json()
