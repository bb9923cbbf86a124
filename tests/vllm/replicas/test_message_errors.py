"""Errors of `/v1/messages`, by vLLM's own converter behind a handler that fails."""

import asyncio
import json
from collections.abc import AsyncGenerator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.exceptions import GracefulHTTPError, VLLMValidationError

from replicas.workarounds.grammar_answers import GrammarError
from replicas.workarounds.message_errors import HANDLER, tell_errors

CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
WHOLE = {"delta": {"role": "assistant", "content": ""}, "index": 0}
TEXT = {"delta": {"content": "a"}, "index": 0}
DEAD = {"error": {"message": "the engine is dead", "type": "InternalServerError", "code": 500}}


def told(handler: Any) -> Any:
    tell_errors(SimpleNamespace(state=SimpleNamespace(**{HANDLER: handler})))
    return handler


def converter() -> Any:
    """vLLM's handler, as far as streams go."""
    handler = AnthropicServingMessages.__new__(AnthropicServingMessages)
    handler.stop_reason_map = {"stop": "end_turn"}
    return handler


async def chunks(*said: Any) -> AsyncGenerator[str, None]:
    for one in said:
        yield f"data: {json.dumps(one)}\n\n"
    yield "data: [DONE]\n\n"


async def events(handler: Any, *said: Any) -> list[str]:
    return [event async for event in handler.message_stream_converter(chunks(*said))]


def choice(one: Any) -> Any:
    return {**CHUNK, "choices": [one]}


async def test_vllm_still_tells_a_client_what_a_chunk_needs() -> None:
    *_, last = await events(converter(), choice(WHOLE), choice(TEXT), DEAD)
    assert "validation error" in last


async def test_an_error_in_a_stream_is_its_last_event() -> None:
    *_, before, last = await events(told(converter()), choice(WHOLE), choice(TEXT), DEAD)
    assert before.startswith("event: content_block_delta")
    name, data = last.strip().split("\n")
    error = {"type": "api_error", "message": "the engine is dead"}
    assert (name, json.loads(data.removeprefix("data: "))["error"]) == ("event: error", error)


async def test_a_stream_without_an_error_is_vllms() -> None:
    usage = {**CHUNK, "choices": [], "usage": {"prompt_tokens": 1, "total_tokens": 2}}
    said = (choice(WHOLE), choice(TEXT), usage)
    assert await events(told(converter()), *said) == await events(converter(), *said)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (GracefulHTTPError("full", HTTPStatus.TOO_MANY_REQUESTS), 429),
        (GrammarError("no token"), 400),
        (VLLMValidationError("too long"), 400),
    ],
)
async def test_a_refusal_is_answered_and_no_stack_logged(error: Exception, status: int) -> None:
    async def create(*args: Any) -> Any:
        raise error

    made = told(SimpleNamespace(create_messages=create, message_stream_converter=None))
    assert (await made.create_messages(None, None)).error.code == status


async def test_what_nobody_expected_is_vllms_to_log() -> None:
    async def create(*args: Any) -> Any:
        raise KeyError("a")

    made = told(SimpleNamespace(create_messages=create, message_stream_converter=None))
    with pytest.raises(KeyError):
        await made.create_messages(None, None)
    tell_errors(SimpleNamespace(state=SimpleNamespace()))  # a model without messages
    assert asyncio.iscoroutinefunction(AnthropicServingMessages.create_messages)
