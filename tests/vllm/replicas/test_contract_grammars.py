"""What the answers for grammars rely on in vLLM, which is not part of its interface."""

import json

import pytest
from vllm.entrypoints.generate.base.serving import GenerateBaseServing
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import GenerationError, VLLMClientError
from vllm.v1.engine import FINISH_REASON_STRINGS

from replicas.workarounds.grammar_answers import GrammarError


def test_vllm_itself_answers_500_and_400_for_ours_in_streams_too() -> None:
    assert "error" in FINISH_REASON_STRINGS
    serving = object.__new__(GenerateBaseServing)
    with pytest.raises(GenerationError, match="Internal server error"):
        serving._raise_if_error("error", "r")
    own, ours = (create_error_response(kind("why")) for kind in (GenerationError, GrammarError))
    assert (own.error.code, ours.error.code) == (500, 400)
    assert (ours.error.type, ours.error.message) == ("BadRequestError", "structured output: why")
    # Ray Serve LLM's own ingress knows these as the client's.
    assert issubclass(GrammarError, VLLMClientError)
    frame = json.loads(serving._convert_generation_error_to_streaming_response(GrammarError("why")))
    assert (frame["error"]["code"], frame["error"]["message"]) == (400, "structured output: why")
