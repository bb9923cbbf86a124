"""What admission relies on in vLLM's app, which is not part of its interface."""

import copy
import inspect

from vllm.entrypoints.generate.base import serving as base
from vllm.entrypoints.openai.chat_completion import serving as chat
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion import serving as completion
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses import serving as responses
from vllm.exceptions import GenerationError, GracefulHTTPError, VLLMClientError
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.request import Request
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from replicas.admission.asked import PRIORITY_HEADER
from replicas.admission.gate import NotLetInError, WaitedTooLongError


def test_generate_is_called_before_the_answer_begins() -> None:
    # An async generator: calling it runs nothing of it.
    assert inspect.isasyncgenfunction(AsyncLLM.generate)
    names = list(inspect.signature(AsyncLLM.generate).parameters)
    assert names[1:4] == ["prompt", "sampling_params", "request_id"]
    assert "priority" in names


def test_errors_of_ours_are_of_kinds_that_vllm_answers_and_does_not_take_for_the_clients() -> None:
    assert issubclass(NotLetInError, GracefulHTTPError)
    assert issubclass(WaitedTooLongError, GenerationError)
    for kind in (NotLetInError, WaitedTooLongError):
        assert not issubclass(kind, ValueError | VLLMClientError)
    for module in (chat, completion, responses):  # then no stack is logged
        assert "except GenerationError as e:" in inspect.getsource(module)


def test_requests_keep_a_tier_that_vllm_does_not_know() -> None:
    for kind in (ChatCompletionRequest, CompletionRequest):
        assert "service_tier" not in kind.model_fields
        assert kind.model_config["extra"] == "allow"


def test_the_header_of_a_priority_is_vllms() -> None:
    assert base.PRIORITY_HEADER.lower() == PRIORITY_HEADER


def test_what_a_request_brings_along_gets_to_the_engine_as_it_was() -> None:
    told = {"brimful": {"itl_s": 0.05, "percentile": 99.0, "ttft_s": None}, "other": 1}
    params = SamplingParams(n=2, extra_args=told)
    wire = MsgpackEncoder().encode(params)
    assert MsgpackDecoder(SamplingParams).decode(wire).extra_args == told
    own = copy.copy(params)
    own.extra_args = {}
    assert params.extra_args == told
    assert params.clone().extra_args == told
    request = Request("r", [1], params, None, arrival_time=0.0)
    assert request.sampling_params is not None
    assert request.sampling_params.extra_args == told
