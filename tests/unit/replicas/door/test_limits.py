"""What one request may ask for; what vLLM cannot send is in test_contract_door."""

import json
import re
from typing import Any

import pytest

from replicas.admission.answers import BadRequestError
from replicas.door.limits import bounded, check_fields, check_sent
from replicas.door.responses import check_input
from replicas.door.settings import Limits

TIGHT = Limits(max_sequences=4, max_tokens=100)
BIG = 10**400


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"n": 5}, "max_sequences"),
        ({"n": 5.0}, "max_sequences"),
        ({"n": "5"}, "max_sequences"),
        ({"n": " 5.0 "}, "max_sequences"),
        ({"n": "5_0"}, "max_sequences"),
        ({"n": BIG}, "max_sequences"),
        ({"n": 1e308}, "max_sequences"),
        ({"n": float("inf")}, "max_sequences"),
        ({"max_tokens": 101}, "max_tokens"),
        ({"max_completion_tokens": 101}, "max_tokens"),
        ({"max_output_tokens": 101}, "max_tokens"),
        ({"prompt": ["a"] * 5}, "max_sequences"),
        ({"prompt": [[1], [2], [3], [4], [5]]}, "max_sequences"),
        ({"prompt": [1, 2, 3, 4, "a"]}, "max_sequences"),
        ({"input": ["a"] * 5}, "max_sequences"),
        ({"prompt_embeds": ["a"] * 5}, "max_sequences"),
        ({"prompt": ["a"] * 3, "n": 2}, "max_sequences"),
    ],
)
def test_more_than_it_may_is_refused_with_field_value_and_limit(fields: Any, key: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        check_fields(fields, TIGHT)
    name = list(fields)[-1]
    most = getattr(TIGHT, key)
    assert (refused.value.answer.param, refused.value.answer.status) == (name, 400)
    assert str(refused.value).startswith(f"{name}: ")
    assert f"at most {most} (security.limits.{key} of this server)" in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 4, "max_tokens": 100, "prompt": "a"},
        {"prompt": ["a", "b"], "input": ["c", "d"]},
        {"n": None, "max_tokens": None, "prompt": None},
        {"n": "x", "max_tokens": [], "prompt": {}},  # vLLM refuses these
        {"n": float("nan")},
        {"n": -5},
        {"prompt": list(range(5000))},  # one prompt, as token ids
        {"prompt": "a" * 5000},
        {"messages": [{}] * 100},
    ],
)
def test_anything_else_is_for_vllm_to_judge(fields: dict[str, Any]) -> None:
    check_fields(fields, TIGHT)


@pytest.mark.parametrize(
    ("path", "fields", "written"),
    [
        ("/v1/chat/completions", {"messages": []}, {"max_completion_tokens": 100}),
        ("/v1/chat/completions", {"max_tokens": None}, {"max_completion_tokens": 100}),
        ("/v1/chat/completions", {"max_tokens": 7}, None),
        ("/v1/chat/completions", {"max_completion_tokens": 7}, None),
        ("/v1/responses", {"input": "a"}, {"max_output_tokens": 100}),
        ("/v1/completions", {"prompt": "a"}, None),  # vLLM generates 16 tokens then
        ("/v1/completions", {"max_tokens": None}, {"max_tokens": 100}),
        ("/v1/embeddings", {"input": "a"}, None),
    ],
)
def test_who_says_no_number_of_tokens_gets_the_limit(path: str, fields: Any, written: Any) -> None:
    body = bounded(path, fields, TIGHT)
    assert (body and json.loads(body)) == (written and {**fields, **written})
    assert bounded(path, fields, Limits()) is None


def test_the_items_of_a_conversation_are_no_prompts() -> None:
    said = {"input": [{"role": "user", "content": "a"}] * 5}
    check_fields(said, TIGHT, "/v1/responses")
    with pytest.raises(BadRequestError, match="max_sequences"):
        check_fields(said, TIGHT, "/v1/embeddings")
    with pytest.raises(BadRequestError, match="max_sequences"):
        check_fields({**said, "n": 5}, TIGHT, "/v1/responses")


@pytest.mark.parametrize("prompts", [{"prompt": ["a"] * 3}, {"prompt": ["a"] * 2, "input": ["b"]}])
def test_answers_times_prompts_are_bounded_together(prompts: dict[str, Any]) -> None:
    limits = Limits(max_sequences=11)
    check_fields({**prompts, "n": 3}, limits)
    for wanted in (4, "4", 4.0):
        with pytest.raises(BadRequestError) as refused:
            check_fields({**prompts, "n": wanted}, limits)
        assert refused.value.answer.param == "n"
        assert "for each of 3 prompts is not allowed: together at most 11" in str(refused.value)
    with pytest.raises(BadRequestError, match="prompt: 1 for each of 12 prompts"):
        check_fields({"prompt": ["a"] * 12}, limits)


HUGE = 54661120633939034112


NUMBER, TEXT = "a whole number of at most 64 bits", ("text that is not Unicode (a lone surrogate)")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("top_k", -(2**63) - 1, NUMBER),
        ("stop_token_ids", [1, 2**64], NUMBER),
        ("structured_outputs", {"json": {"maximum": HUGE}}, NUMBER),
        ("output_config", {"format": {"schema": {"maximum": HUGE}}}, NUMBER),
        ("request_id", "\ud83d", TEXT),
        ("kv_transfer_params", {"a": [{"b\ud800": 1}]}, TEXT),
        ("structured_outputs", {"choice": ["\ud83d"]}, TEXT),
        ("prompt", ["a", "\ud800 x"], TEXT),
        ("messages", [{"role": "user", "content": [{"type": "text", "text": "\ud83d"}]}], TEXT),
        ("metadata", {"\udc00": "a"}, TEXT),
    ],
)
def test_what_the_engine_cannot_be_sent_is_named(name: str, value: Any, said: str) -> None:
    with pytest.raises(BadRequestError, match=re.escape(f"is not allowed: {said}")) as refused:
        check_sent({"model": "m", name: value})
    assert (refused.value.answer.param, refused.value.answer.status) == (name, 400)
    str(refused.value).encode()  # so that it can be answered


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": 2**64 - 1, "stop_token_ids": [-(2**63)], "min_tokens": None},
        {"stop_token_ids": ["_", "a", "1e30", "1" * 9000]},  # vLLM's own 400
        {"vllm_xargs": {"id": str(HUGE)}, "user": str(HUGE)},
        {"stop": str(HUGE), "request_id": str(HUGE), "bad_words": [str(HUGE)]},
        {"stop": [str(HUGE), "\U0001f600", "\ud7ff\ue000"]},
        {"text": str(HUGE), "response_format": {"type": "json_object"}, "stop": None},
        {"text": {"format": {"type": "text"}}, "chat_template_kwargs": {"enable_thinking": False}},
        {"tools": [{"function": {"parameters": {"maximum": HUGE}}}], "unknown": HUGE},
        {"tools": [{"input_schema": {"maximum": HUGE}}], "system": str(HUGE)},
    ],
)
def test_any_other_number_comes_through(fields: dict[str, Any]) -> None:
    check_sent(fields)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_such_text_is_found_in_every_encoding_that_json_may_have(encoding: str) -> None:
    body = '{"prompt": "a\ud83d"}'.encode(encoding, "surrogatepass")
    with pytest.raises(BadRequestError, match="a lone surrogate"):
        check_sent(json.loads(body), body)


REFUSAL = {"type": "refusal", "refusal": "no"}

OUTPUT = {"type": "function_call_output", "call_id": "c", "id": "f", "status": "completed"}
PARTS = [{"type": "input_text", "text": "a"}]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (
            {**OUTPUT, "output": PARTS, "created_by": "a"},
            ("an output in parts is not served with created_by; allowed: one of the two"),
        ),
        ({"type": "computer_call"}, "an item of type 'computer_call' is not served here; allowed"),
        ({"type": "compaction", "role": "user"}, "an item of type 'compaction' is not served"),
        ({"type": ["message"]}, "an item of type ['message'] is not served here"),
        ({"content": "a"}, "a message needs a role"),
        ({"type": "message", "role": None}, "a message needs a role"),
        ({"type": None, "role": "assistant", "content": []}, "a message needs content"),
        (
            {"type": "message", "role": "assistant", "content": [REFUSAL]},
            "a message that begins with a refusal is not served here; allowed: output_text",
        ),
    ],
)
def test_an_item_that_vllm_would_fail_over_is_named(item: Any, said: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        check_input({"input": [{"role": "user", "content": "a"}, item]})
    assert (refused.value.answer.param, refused.value.answer.status) == ("input[1]", 400)
    assert str(refused.value).startswith(f"input[1]: {said}")


@pytest.mark.parametrize(
    "given",
    [
        "a river",
        None,
        [],
        [{"role": "user", "content": "a"}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}],
        [{"role": "assistant", "id": "m", "status": "completed", "content": [REFUSAL]}],
        [{"type": "message", "role": "assistant", "content": ["a", REFUSAL]}],
        [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
        [{"type": "function_call_output", "call_id": "c", "output": "a"}],
        [{**OUTPUT, "output": PARTS}],
        [{**OUTPUT, "output": "a", "created_by": "a"}],
        [{"type": "reasoning", "summary": []}],
        ["a", 3],  # vLLM's own 400
    ],
)
def test_what_vllm_takes_or_refuses_itself_comes_through(given: Any) -> None:
    check_input({"input": given})
