"""What the door relies on in vLLM's request models and in what its engine can be sent."""

from typing import Any, Literal, get_args, get_origin

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.tool_parsers.utils import get_json_schema_from_tools
from vllm.v1.serial_utils import MsgpackEncoder

from replicas.admission.answers import BadRequestError
from replicas.door.limits import SENT, check_sent

Model = type[ChatCompletionRequest] | type[CompletionRequest] | type[ResponsesRequest]
CHAT, COMPLETIONS, RESPONSES = ChatCompletionRequest, CompletionRequest, ResponsesRequest
LEAST_FIELDS: dict[Any, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5},
    COMPLETIONS: {"prompt": "a", "max_tokens": 5},
    RESPONSES: {"input": "a"},
}
PLAIN = {bool, float, type(None)}
# Those that vLLM's models or the door's own limits bound.
BOUNDED = {"seed", "priority", "truncate_prompt_tokens", "n", "logit_bias"}
BOUNDED |= {"max_completion_tokens", "max_output_tokens", "max_tool_calls"}  # the model's length
BOUNDED |= {"logprobs", "top_logprobs", "prompt_logprobs"}  # engine_kwargs.max_logprobs
# Those of which the engine is sent nothing, or tokens; `tools` where one must be called.
STAYS = {"messages", "input", "prompt", "prompt_embeds", "instructions", "suffix", "reasoning"}
STAYS |= {"model", "user", "metadata", "prompt_cache_key", "previous_response_id", "stream_options"}
STAYS |= {"chat_template", "media_io_kwargs", "mm_processor_kwargs", "previous_input_messages"}
STAYS |= {"tools", "tool_choice"}


def is_plain(annotation: Any) -> bool:
    if get_origin(annotation) is Literal or annotation in PLAIN:
        return True
    within = get_args(annotation)
    return bool(within) and get_origin(annotation) is not dict and all(map(is_plain, within))


@pytest.mark.parametrize("model", [CHAT, COMPLETIONS, RESPONSES])
def test_the_door_knows_every_field_of_which_numbers_and_text_get_to_the_engine(model):
    not_plain = {
        name for name, field in model.model_fields.items() if not is_plain(field.annotation)
    }
    assert not_plain <= SENT | BOUNDED | STAYS, not_plain - SENT - BOUNDED - STAYS


HUGE, LONE = 2**70, "\ud83d"
SCHEMAS = [{"maximum": HUGE}, {"const": HUGE}, {"default": HUGE}, {"examples": [HUGE]}]
UNSENDABLE: list[tuple[Model, dict[str, Any]]] = [
    *[
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "a", **of}}})
        for of in ({"schema": schema} for schema in SCHEMAS)
    ],
    *[
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}})
        for schema in SCHEMAS
    ],
    *[(model, {"ec_transfer_params": {"a": HUGE}}) for model in (CHAT, COMPLETIONS, RESPONSES)],
    *[
        (model, {"repetition_detection": {"max_pattern_size": size, "min_count": 2}})
        for model in (CHAT, COMPLETIONS)
        for size in (HUGE, str(HUGE), f"{HUGE}.0")
    ],
    *[
        (CHAT, {name: text})
        for name in ("top_k", "routed_experts_prompt_start", "stream_interval")
        for text in (
            f"{HUGE}.0",
            f" +0_{HUGE}.00 ",
            f"\x85{HUGE}",
            "0" * 5000 + str(HUGE),
            "1" * 4300,
        )
    ],
    (CHAT, {"stop_token_ids": [f"{HUGE}.0"]}),
    *[(model, {"stop": [LONE]}) for model in (CHAT, COMPLETIONS, RESPONSES)],
    *[(model, {"stop": LONE}) for model in (CHAT, COMPLETIONS, RESPONSES)],
    (CHAT, {"bad_words": [LONE]}),
    *[
        (model, {name: value})
        for model in (CHAT, COMPLETIONS, RESPONSES)
        for name in ("vllm_xargs", "kv_transfer_params", "ec_transfer_params")
        for value in ({"a": LONE}, {LONE: "a"})
    ],
]


@pytest.mark.parametrize(("model", "fields"), UNSENDABLE, ids=lambda it: ascii(it)[:60])
def test_what_vllm_takes_and_cannot_send_the_door_refuses(model, fields):
    request = model(**LEAST_FIELDS[model], **fields)
    with pytest.raises((OverflowError, UnicodeEncodeError)):
        MsgpackEncoder().encode(request.to_sampling_params(5, {}))
    with pytest.raises(BadRequestError, match=next(iter(fields))):
        check_sent({**LEAST_FIELDS[model], **fields})


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (CHAT, {"stop": str(HUGE), "top_k": "5.0"}),
        (COMPLETIONS, {"stop": [str(HUGE), "\U0001f600"], "repetition_detection": None}),
        (RESPONSES, {"text": {"format": {"type": "text"}}, "stop": "a"}),
        (RESPONSES, {"text": {"format": {"type": "json_schema", "name": "a", "schema": {}}}}),
        (CHAT, {"response_format": {"type": "json_object"}, "vllm_xargs": {"id": str(HUGE)}}),
    ],
)
def test_what_can_be_sent_the_door_lets_through(model: Model, fields: dict[str, Any]) -> None:
    check_sent({**LEAST_FIELDS[model], **fields})
    request = model(**LEAST_FIELDS[model], **fields)
    MsgpackEncoder().encode(request.to_sampling_params(5, {}))


def test_of_a_tool_that_must_be_called_vllm_sends_the_schema() -> None:
    parameters = {"type": "object", "maximum": HUGE}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    for choice in ("required", {"type": "function", "function": {"name": "f"}}):
        request = CHAT(**LEAST_FIELDS[CHAT], tools=tools, tool_choice=choice)
        schema = get_json_schema_from_tools(request.tool_choice, request.tools)
        with pytest.raises(OverflowError):
            MsgpackEncoder().encode(schema)
        with pytest.raises(BadRequestError, match="tools"):
            check_sent({"tools": tools, "tool_choice": choice})
