"""What the door relies on in vLLM's request models and in what its engine can be sent."""

import re

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_chat_messages_with_tool_call
from vllm.sampling_params import SamplingParams
from vllm.v1.serial_utils import MsgpackEncoder

from replicas.door.limits import LEAST_INT, MOST_INT, SENT

# Those that vLLM's models or the door's own limits bound, and those that stay in the API.
BOUNDED = {"seed", "priority", "truncate_prompt_tokens", "n", "prompt"}
BOUNDED |= {"max_completion_tokens", "max_output_tokens", "max_tool_calls"}  # the model's length
BOUNDED |= {"logprobs", "top_logprobs", "prompt_logprobs"}  # max_logprobs


def test_the_door_knows_every_field_of_which_whole_numbers_get_to_the_engine() -> None:
    for model in (ChatCompletionRequest, CompletionRequest, ResponsesRequest):
        whole = {
            name
            for name, field in model.model_fields.items()
            if re.fullmatch(
                r"(typing\.|Optional|list|\W|int|None|class|dict|str|float)*",
                re.sub(r"typing\.Annotated\[int, .*?\]\)\]", "int", str(field.annotation)),
            )
            and re.search(r"\bint\b", str(field.annotation))
        }
        assert whole - BOUNDED <= SENT | {"logit_bias"}, whole - BOUNDED - SENT


@pytest.mark.parametrize("number", [LEAST_INT, MOST_INT, LEAST_INT - 1, MOST_INT + 1])
def test_whole_numbers_of_64_bits_can_be_sent_and_no_others(number: int) -> None:
    params = SamplingParams(extra_args={"a": number})
    if LEAST_INT <= number <= MOST_INT:
        MsgpackEncoder().encode(params)
    else:
        with pytest.raises(OverflowError):
            MsgpackEncoder().encode(params)


@pytest.mark.parametrize("says_its_type", [True, False])
def test_vllm_fails_over_a_message_that_begins_with_a_refusal(says_its_type: bool) -> None:
    message = {
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "refusal", "refusal": "no"}],
    }
    if says_its_type:
        message["type"] = "message"
    request = ResponsesRequest(input=[message])
    if says_its_type:
        with pytest.raises(AttributeError):
            construct_chat_messages_with_tool_call(request.input)
    else:
        assert construct_chat_messages_with_tool_call(request.input)[0]["role"] == "assistant"


@pytest.mark.parametrize("by", [{"created_by": "a"}, {}])
def test_vllm_makes_objects_of_the_parts_of_some_outputs(by: dict[str, str]) -> None:
    item = {"type": "function_call_output", "call_id": "c", "id": "f", "status": "completed"}
    output = [{"type": "input_text", "text": "a"}]
    (made,) = ResponsesRequest(input=[{**item, "output": output, **by}]).input
    assert isinstance(made, dict) != bool(by)  # an object's parts fail in vLLM's chat parser
