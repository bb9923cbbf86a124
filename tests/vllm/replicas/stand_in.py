"""Stand-ins for an ``AsyncLLM`` and for vLLM's app, to make errors that vLLM seldom has."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.exceptions import EngineDeadError

from controller.classes import ServiceClasses, parse_admission
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate, NotLetInError, WaitedTooLongError
from replicas.admission.http import AdmissionMiddleware
from replicas.door.auth import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security
from replicas.server.stream_ends import OpenAnswers, StreamEndMiddleware
from tests.unit.replicas.admission.builders import CLASSES

PROMPT = {"prompt_token_ids": [1, 2, 3]}


class Engine:
    """What the gate needs of an ``AsyncLLM``; ``outputs`` says what a request gets.

    Attributes:
        priorities, told: of the requests that came through, and what was brought along.
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
        self.outputs: Callable[[], AsyncIterator[str]] = three
        self.priorities: list[int] = []
        self.told: list[dict[str, Any] | None] = []
        self.aborted = 0

    async def generate(
        self, prompt: Any, params: Any, request_id: str, *, priority: int = 0
    ) -> AsyncIterator[str]:
        self.priorities.append(priority)
        self.told.append(params.extra_args)
        try:
            async for output in self.outputs():
                yield output
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted += 1
            raise


async def three() -> AsyncIterator[str]:
    for output in "abc":
        yield output


async def never() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""


async def dead() -> AsyncIterator[str]:
    raise EngineDeadError
    yield ""


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


def gate_of(engine: Any, classes: ServiceClasses = CLASSES, *, named: bool = True) -> Gate:
    """A gate around ``generate`` of an engine with ten slots."""
    made = Gate(Admission(classes, parse_admission(None), 10, 0.0), named_classes=named)
    made.guard(engine)
    return made


def before(app: Any, engine: Any, gate: Gate | None, traces: Any = None, **security: Any) -> Any:
    """The app with all that a replica puts before it."""
    admission = AdmissionMiddleware(app, engine, gate, traces)
    door = DoorMiddleware(admission, Door(Rules(parse_security(security))))
    return StreamEndMiddleware(door, OpenAnswers())


def client_of(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://r")


async def ask(client: httpx.AsyncClient, headers: Any = None, **body: Any) -> httpx.Response:
    return await client.post("/v1/completions", json=body, headers=headers)
