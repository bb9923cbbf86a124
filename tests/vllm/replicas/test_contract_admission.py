"""What admission relies on in vLLM's app, which is not part of its interface."""

import inspect

from vllm.entrypoints.generate.base import serving as base
from vllm.entrypoints.openai.chat_completion import serving as chat
from vllm.entrypoints.openai.completion import serving as completion
from vllm.entrypoints.openai.responses import serving as responses
from vllm.exceptions import GenerationError, GracefulHTTPError, VLLMClientError

from replicas.admission.asked import PRIORITY_HEADER
from replicas.admission.gate import NotLetInError, WaitedTooLongError


def test_errors_of_ours_are_of_kinds_that_vllm_answers_and_does_not_take_for_the_clients() -> None:
    assert issubclass(NotLetInError, GracefulHTTPError)
    assert issubclass(WaitedTooLongError, GenerationError)
    for kind in (NotLetInError, WaitedTooLongError):
        assert not issubclass(kind, ValueError | VLLMClientError)
    for module in (chat, completion, responses):  # then no stack is logged
        assert "except GenerationError as e:" in inspect.getsource(module)


def test_the_header_of_a_priority_is_vllms() -> None:
    assert base.PRIORITY_HEADER.lower() == PRIORITY_HEADER
