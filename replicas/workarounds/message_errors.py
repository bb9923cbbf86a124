"""Errors of ``/v1/messages`` with their reason, and no stack in the log for expected ones.

vLLM 0.29 mistakes the error that ends a stream of its chat handler for a chunk, fails on it, and
tells the client which fields a chunk needs. It logs a stack for each request refused before its
answer (docs/upstream/vllm-messages-errors.md).
"""

import json
from collections.abc import AsyncGenerator
from typing import Any

from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import GenerationError, GracefulHTTPError, VLLMClientError

from replicas.admission.api_errors import anthropic_event

HANDLER = "anthropic_serving_messages"
FRAME = 'data: {"error"'
EXPECTED = (GenerationError, GracefulHTTPError, VLLMClientError)


def tell_errors(app: Any) -> None:
    """Make this app of vLLM's, if it has messages, answer errors like this."""
    handler = getattr(app.state, HANDLER, None)
    if handler is None:
        return
    create, convert = handler.create_messages, handler.message_stream_converter

    async def created(*args: Any) -> Any:
        try:
            return await create(*args)
        except EXPECTED as error:
            return create_error_response(error)

    def converted(chunks: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        return _ended(convert, chunks)

    handler.create_messages, handler.message_stream_converter = created, converted


async def _ended(convert: Any, chunks: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Anthropic's events of a chat stream; an error is the last event."""
    errors: list[str] = []

    async def until_error() -> AsyncGenerator[str, None]:
        async for chunk in chunks:
            if chunk.startswith(FRAME):
                errors.append(chunk)
                return
            yield chunk

    async for event in convert(until_error()):
        yield event
    for one in errors:
        await chunks.aclose()  # Anthropic's API has no [DONE]
        told = json.loads(one.removeprefix("data: "))["error"]
        yield anthropic_event(int(told["code"]), str(told["message"])).decode()
