"""Checks input of ``/v1/responses`` on which vLLM would fail. Pure.

vLLM 0.29 turns input items into chat messages and answers 500 to items that it does not know
(docs/upstream/vllm-responses-input.md). The client can correct them, so they get a 400 here.
"""

from collections.abc import Mapping
from typing import Any

from controller.validation import shown
from replicas.admission.answers import BadRequestError

PATH = "/v1/responses"
MESSAGE = "message"
OUTPUT = "function_call_output"
OF_ITS_OWN = {"id", "status", "created_by"}  # with these vLLM reads it, and its parts, as objects
# Types that vLLM can turn into messages; an item without a type is a message.
TYPES = (MESSAGE, "function_call", OUTPUT, "reasoning")


def check_input(fields: Mapping[str, Any]) -> None:
    """Refuse input items that vLLM cannot turn into messages.

    Raises:
        BadRequestError: naming the item, the problem and what is allowed.
    """
    items = fields.get("input")
    if not isinstance(items, list):
        return
    for index, item in enumerate(items):
        name = f"input[{index}]"
        if not isinstance(item, dict):
            continue  # vLLM answers 400 itself
        kind = item.get("type") or MESSAGE
        if kind not in TYPES:
            allowed = ", ".join(TYPES)
            said = f"an item of type {shown(kind)} is not served here; allowed: {allowed}"
            raise BadRequestError(name, said)
        if kind == OUTPUT and isinstance(item.get("output"), list) and item.keys() >= OF_ITS_OWN:
            said = "an output in parts is not served with created_by; allowed: one of the two"
            raise BadRequestError(name, said)
        if kind != MESSAGE:
            continue
        if not isinstance(item.get("role"), str):
            raise BadRequestError(name, "a message needs a role")
        content = item.get("content")
        if content == []:
            raise BadRequestError(name, "a message needs content")
        # Only a message with a type becomes the object from which vLLM reads a text.
        if item.get("type") == MESSAGE and isinstance(content, list) and _refuses(content[0]):
            said = "a message that begins with a refusal is not served here; allowed: output_text"
            raise BadRequestError(name, said)


def _refuses(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "refusal"
