"""Admission where Ray Serve LLM's own ingress calls the replica, and what its clients are sent."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from ray.llm._internal.serve.core.configs.openai_api_models import (
    CompletionRequest,
    CompletionResponse,
    ErrorResponse,
)
from ray.llm._internal.serve.core.protocol import RawRequestInfo
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from vllm.sampling_params import SamplingParams

from replicas.admission.answers import HEADERS
from replicas.admission.drain import EngineView
from replicas.admission.gate import current
from replicas.server.plain_calls import AdmittingEngine
from tests.vllm.replicas.stand_in import PROMPT, Engine, dead, gate_of, never

WHOLE = CompletionResponse(model="m", choices=[], usage={"prompt_tokens": 3, "total_tokens": 3})


@pytest.fixture
def behind(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The engine behind Ray's class, whose own answers are these."""
    engine = Engine()

    async def completions(_: Any, request: Any, info: Any) -> AsyncIterator[Any]:
        outputs = engine.generate(PROMPT, SamplingParams(), "r", priority=request.priority)
        if not request.stream:
            async for _ in outputs:
                pass
            yield WHOLE.model_copy()
            return
        try:
            async for output in outputs:
                yield f'data: {{"text": "{output}"}}\n\n'
        except Exception as error:
            frame = {"error": {"message": str(error), "code": 400, "type": "BadRequestError"}}
            yield f"data: {json.dumps(frame)}\n\n"

    monkeypatch.setattr(VLLMEngine, "completions", completions)
    return engine


@pytest.fixture
def admitting(behind: Engine) -> AdmittingEngine:
    made = object.__new__(AdmittingEngine)
    made.gate = gate_of(behind)
    return made


async def call(engine: AdmittingEngine, headers: Any = None, **body: Any) -> list[Any]:
    request = CompletionRequest(model="m", prompt="a", **body)
    items = [i async for i in engine.completions(request, RawRequestInfo(headers=headers or {}))]
    current.set(None)
    waiting = engine.gate.admission.waiting
    assert (waiting.requests, waiting.running) == (0, 0)
    return items


async def test_the_class_that_served_is_in_the_answer(admitting, behind) -> None:
    (whole,) = await call(admitting, service_tier="batch")
    assert whole.model_dump()["service_tier"] == "batch"
    first, *rest = await call(admitting, stream=True, service_tier="batch")
    assert first == 'data: {"service_tier":"batch","text": "a"}\n\n'
    assert "service_tier" not in "".join(rest)
    (headed,) = await call(admitting, {"X-LLM-D-Inference-Objective": "gold"})
    assert headed.service_tier == "gold"
    assert behind.priorities == [20, 20, 0]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_is_an_error_with_its_headers(admitting, stream: bool) -> None:
    admitting.gate.admission.waiting.learn(EngineView(free_slots=0, requests_per_s=0.001))
    (error,) = await call(admitting, stream=stream)
    assert isinstance(error, ErrorResponse)
    assert error.error.code == 429
    assert error.error.model_extra[HEADERS]["x-brimful-reason"] == "deadline"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_timeout_and_adead_engine_are_errors_too(admitting, behind, stream: bool) -> None:
    behind.outputs = never
    (error,) = await call(admitting, {"x-request-timeout-seconds": "0.05"}, stream=stream)
    assert (error.error.code, behind.aborted) == (503, 1)
    behind.outputs = dead
    (error,) = await call(admitting, stream=stream)
    assert error.error.model_extra[HEADERS]["x-brimful-reason"] == "engine_failed"
