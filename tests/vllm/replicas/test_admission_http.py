"""What is sent when an answer fails before its first byte: a status, never a frame inside a 200."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.exceptions import EngineDeadError

from controller.classes import one_class, parse_admission
from replicas.admission.admission import Admission
from replicas.admission.drain import EngineView
from replicas.admission.gate import Gate, NotLetInError, WaitedTooLongError, prompt_tokens
from replicas.admission.http import AdmissionMiddleware, with_class
from tests.unit.replicas.admission.builders import CLASSES

PROMPT = {"prompt_token_ids": [1, 2, 3]}


class Engine:
    """What the gate needs of an ``AsyncLLM``; ``outputs`` says what a request gets.

    Attributes:
        priorities: of the requests that came through.
        aborted: how many were closed before their end.
    """

    def __init__(self) -> None:
        self.errored = False
        self.output_processor = SimpleNamespace(
            add_request=lambda request: None,
            process_outputs=lambda outputs: outputs,
            request_states={},
        )
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(policy="priority"))
        self.outputs: Callable[[], AsyncIterator[str]] = _three
        self.priorities: list[int] = []
        self.aborted = 0

    async def generate(
        self, prompt: Any, params: Any, request_id: str, *, priority: int = 0
    ) -> AsyncIterator[str]:
        self.priorities.append(priority)
        try:
            async for output in self.outputs():
                yield output
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted += 1
            raise


async def _three() -> AsyncIterator[str]:
    for output in "abc":
        yield output


async def _never() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""


async def _dead() -> AsyncIterator[str]:
    raise EngineDeadError
    yield ""


def begins(engine: Engine, own_id: str) -> None:
    """The engine is told of a request."""
    engine.output_processor.add_request(SimpleNamespace(request_id=own_id))
    engine.output_processor.request_states[own_id] = SimpleNamespace(is_prefilling=True)


def first_token(engine: Engine, *own_ids: str) -> None:
    """The engine has made one of each of these."""
    engine.output_processor.process_outputs([SimpleNamespace(request_id=one) for one in own_ids])


def app_of(engine: Engine) -> Starlette:
    """An app that answers as vLLM's: errors of a stream are frames, others are statuses."""

    async def answer(request: Request) -> Response:
        asked = await request.json()
        if engine.errored:
            return JSONResponse({"error": {"message": "dead", "code": 500}}, 500)
        try:
            outputs = engine.generate(
                PROMPT, SamplingParams(), "r", priority=asked.get("priority", 0)
            )
        except NotLetInError as error:
            return JSONResponse({"error": {"message": str(error), "code": 418}}, 418)
        if asked.get("stream"):
            return StreamingResponse(_frames(outputs), media_type="text/event-stream")
        try:
            text = "".join([output async for output in outputs])
        except (WaitedTooLongError, EngineDeadError):
            return JSONResponse({"error": {"message": "vLLM's own", "code": 500}}, 500)
        return JSONResponse({"text": text, "service_tier": None})

    async def _frames(outputs: AsyncIterator[str]) -> AsyncIterator[str]:
        try:
            async for output in outputs:
                yield f'data: {{"text": "{output}"}}\n\n'
        except Exception as error:
            code = 400 if isinstance(error, ValueError) else 500
            frame = {"error": {"message": str(error), "code": code, "param": "p"}}
            yield f"data: {json.dumps(frame)}\n\n"
        yield "data: [DONE]\n\n"

    return Starlette(routes=[Route("/v1/completions", answer, methods=["POST"])])


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def gate(engine: Engine) -> Gate:
    made = Gate(Admission(CLASSES, parse_admission(None), 10, 0.0), named_classes=True)
    made.guard(engine)
    return made


@pytest.fixture
async def client(engine: Engine, gate: Gate) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(AdmissionMiddleware(app_of(engine), gate))
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as made:
        yield made
    waiting = gate.admission.waiting
    assert (waiting.requests, waiting.running) == (0, 0)


async def ask(client: httpx.AsyncClient, headers: Any = None, **body: Any) -> httpx.Response:
    return await client.post("/v1/completions", json=body, headers=headers)


async def test_an_answer_names_its_class(client: httpx.AsyncClient) -> None:
    answer = await ask(client, service_tier="gold")
    assert answer.json() == {"text": "abc", "service_tier": "gold"}
    stream = await ask(client, service_tier="gold", stream=True)
    assert stream.text.splitlines()[0] == 'data: {"service_tier":"gold","text": "a"}'
    assert stream.text.count("service_tier") == 1


async def test_who_names_none_gets_the_bytes_of_the_app(client: httpx.AsyncClient) -> None:
    assert (await ask(client)).json() == {"text": "abc", "service_tier": None}
    assert "service_tier" not in (await ask(client, stream=True)).text


async def test_a_class_brings_its_priority_and_a_request_its_own(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    await ask(client, service_tier="batch")
    await ask(client)
    await ask(client, service_tier="batch", priority=0)
    await ask(client, service_tier="batch", priority=3)
    assert engine.priorities == [20, 10, 0, 3]


async def test_an_engine_that_serves_in_order_gets_no_priorities(
    gate: Gate, engine: Engine, client: httpx.AsyncClient
) -> None:
    plain = Engine()
    plain.vllm_config.scheduler_config.policy = "fcfs"
    gate.guard(plain)
    ticket = gate.ticket({}, {"service_tier": "batch"})
    del ticket
    assert [o async for o in plain.generate(PROMPT, SamplingParams(), "r")] == ["a", "b", "c"]
    assert plain.priorities == [0]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_takes_the_place_of_the_apps_answer(
    client: httpx.AsyncClient, gate: Gate, stream: bool
) -> None:
    gate.admission.learn(EngineView(free_slots=0, requests_per_s=0.001))
    answer = await ask(client, stream=stream)
    assert (answer.status_code, answer.headers["x-brimful-reason"]) == (429, "deadline")
    assert answer.headers["content-type"] == "application/json"


async def test_a_client_can_hold_its_wait_against_the_predicted_one(
    client: httpx.AsyncClient, gate: Gate
) -> None:
    assert "x-brimful-predicted-wait-ms" not in (await ask(client)).headers
    gate.admission.learn(EngineView(free_slots=1, prompt_tokens_per_s=10.0))
    assert (await ask(client)).headers["x-brimful-predicted-wait-ms"] == "300"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_timeout_is_a_503_and_an_abort(
    client: httpx.AsyncClient, engine: Engine, stream: bool
) -> None:
    engine.outputs = _never
    answer = await ask(client, {"x-request-timeout-seconds": "0.05"}, stream=stream)
    assert (answer.status_code, answer.headers["x-brimful-reason"]) == (503, "queue_timeout")
    assert answer.json()["error"]["code"] == 503
    assert engine.aborted == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_dies_before_the_first_byte_is_a_503_to_repeat(
    client: httpx.AsyncClient, engine: Engine, stream: bool
) -> None:
    engine.outputs = _dead
    answer = await ask(client, stream=stream)
    assert (answer.status_code, answer.headers["x-brimful-reason"]) == (503, "engine_failed")
    assert float(answer.headers["retry-after-ms"]) <= 1500
    engine.errored = True
    assert (await ask(client, stream=stream)).status_code == 503


async def test_an_answer_that_is_not_streamed_has_begun_with_its_first_token(
    client: httpx.AsyncClient, engine: Engine, gate: Gate
) -> None:
    made, done = asyncio.Event(), asyncio.Event()

    async def outputs() -> AsyncIterator[str]:
        begins(engine, "inner")
        first_token(engine, "inner", "other")
        made.set()
        await done.wait()
        yield "abc"

    engine.outputs = outputs
    call = asyncio.create_task(ask(client, {"x-request-timeout-seconds": "0.2"}))
    await made.wait()
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (1, 0)
    await asyncio.sleep(0.3)  # its timeout was for the first token
    done.set()
    assert (await call).json()["text"] == "abc"
    assert gate.admission.counts.started == {"silver": 1}


async def test_an_engine_that_dies_later_ends_the_stream_with_its_error(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    async def outputs() -> AsyncIterator[str]:
        yield "a"
        raise EngineDeadError

    engine.outputs = outputs
    answer = await ask(client, stream=True)
    assert answer.status_code == 200
    assert '{"error": {' in answer.text.split("\n\n")[1]


async def test_an_error_that_is_the_first_frame_is_a_status(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    async def outputs() -> AsyncIterator[str]:
        raise ValueError("too long")
        yield ""

    engine.outputs = outputs
    answer = await ask(client, stream=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "p"


async def test_without_classes_a_tier_is_what_vllm_makes_of_it() -> None:
    engine = Engine()
    gate = Gate(Admission(one_class(None), parse_admission(None), 10, 0.0), named_classes=False)
    gate.guard(engine)
    transport = httpx.ASGITransport(AdmissionMiddleware(app_of(engine), gate))
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as client:
        answer = await ask(client, service_tier="flex")
    assert answer.json()["service_tier"] is None
    assert gate.admission.counts.let_in == {"default": 1}


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        (PROMPT, 3),
        (SimpleNamespace(prompt_token_ids=[1]), 1),
        ({"prompt_embeds": [[0.0], [0.0]]}, 2),
        ({"prompt_token_ids": None}, 0),
        ("a river", 0),
    ],
)
def test_a_prompts_tokens_are_counted(prompt: Any, tokens: int) -> None:
    assert prompt_tokens(prompt) == tokens


def test_only_the_first_event_of_a_stream_is_changed() -> None:
    assert with_class(b'data: {"a":1}\n\ndata: {"b":2}\n\n', "x") == (
        b'data: {"service_tier":"x","a":1}\n\ndata: {"b":2}\n\n'
    )
    assert with_class(b": keep-alive\n\n", "x") == b": keep-alive\n\n"
