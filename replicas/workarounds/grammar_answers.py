"""A request that the engine ended for its grammar gets a 400 with the reason."""

from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any

from vllm.exceptions import GenerationError, VLLMValidationError

from replicas.admission.answers import CLIENT_ERROR, Answer
from replicas.admission.asgi import reasons
from replicas.workarounds.grammar_faults import FAULT


class GrammarError(VLLMValidationError, GenerationError):
    """An error that vLLM's handlers answer with 400, in streams too, without logging a stack."""

    def __init__(self, message: str) -> None:
        super().__init__(f"structured output: {message}")
        self.status_code = HTTPStatus.BAD_REQUEST


def answer_for_grammars(client: Any) -> None:
    """Make ``generate`` of this ``AsyncLLM`` raise a ``GrammarError`` if vLLM's API would answer
    500 for a grammar.
    """
    generate = client.generate

    def told(prompt: Any, sampling_params: Any, *args: Any, **options: Any) -> Any:
        outputs = generate(prompt, sampling_params, *args, **options)
        structured = getattr(sampling_params, "structured_outputs", None)
        return outputs if structured is None else _checked(outputs)

    client.generate = told


async def _checked(outputs: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async for output in outputs:
            for one in output.outputs:
                reason = one.stop_reason
                if isinstance(reason, str) and one.finish_reason == "error":
                    error = GrammarError(reason.removeprefix(FAULT))
                    if (known := reasons.get()) is not None:
                        known.append(Answer(CLIENT_ERROR, "bad_request", str(error)))
                    raise error
            yield output
    finally:
        await outputs.aclose()
