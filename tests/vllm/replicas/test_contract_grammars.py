"""What the answers for grammars rely on in vLLM, which is not part of its interface."""

import inspect
import json
from dataclasses import fields

import pytest
from vllm.entrypoints.generate.base.serving import GenerateBaseServing
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.exceptions import GenerationError, VLLMClientError
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import GrammarOutput
from vllm.v1.engine import FINISH_REASON_STRINGS
from vllm.v1.request import Request
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar

from replicas.workarounds.grammar_answers import GrammarError
from replicas.workarounds.grammar_faults import OWN_MASKS


def test_what_is_read_of_a_request_and_its_grammar_is_there() -> None:
    request = Request("r", [1], SamplingParams(), None, arrival_time=0.0)
    assert (request.stop_reason, request.structured_output_request) == (None, None)
    assert not request.use_structured_output
    for name in OWN_MASKS:
        assert hasattr(SamplingParams(), name)
    assert len(inspect.signature(StructuredOutputGrammar.fill_bitmask).parameters) == 3
    assert len(inspect.signature(StructuredOutputBackend.allocate_token_bitmask).parameters) == 2


def test_the_emulated_accelerator_is_told_what_grammars_allow() -> None:
    names = [field.name for field in fields(GrammarOutput)]
    assert names == ["structured_output_request_ids", "grammar_bitmask"]


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
