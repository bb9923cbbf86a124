"""What ``/v1/responses`` may be given."""

from typing import Any

import pytest

from replicas.admission.answers import BadRequestError
from replicas.door.responses import check_input

REFUSAL = {"type": "refusal", "refusal": "no"}

OUTPUT = {"type": "function_call_output", "call_id": "c", "id": "f", "status": "completed"}
PARTS = [{"type": "input_text", "text": "a"}]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (
            {**OUTPUT, "output": PARTS, "created_by": "a"},
            "an output in parts is not served beside created_by; allowed: one of the two",
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
