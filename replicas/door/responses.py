"""What ``/v1/responses`` may be given, where vLLM would fail over it. Pure.

vLLM 0.29 turns input items into chat messages and answers 500 for those that it does not know
(docs/upstream/vllm-responses-input.md). They are the client's to mend, so they are a 400 here.
"""

from collections.abc import Mapping
from typing import Any

from controller.validation import shown
from replicas.admission.answers import BadRequestError

PATH = "/v1/responses"
MESSAGE = "message"
OUTPUT = "function_call_output"
OF_ITS_OWN = {"id", "status", "created_by"}  # with these vLLM reads it as an object, parts as well
# Those that vLLM makes messages of; an item without a type is a message.
TYPES = (MESSAGE, "function_call", OUTPUT, "reasoning")


def check_input(fields: Mapping[str, Any]) -> None:
    """Refuse input that vLLM has no words for.

    Raises:
        BadRequestError: naming the item, what is wrong with it and what is allowed.
    """
    items = fields.get("input")
    if not isinstance(items, list):
        return
    for index, item in enumerate(items):
        name = f"input[{index}]"
        if not isinstance(item, dict):
            continue  # vLLM's own 400
        kind = item.get("type") or MESSAGE
        if kind not in TYPES:
            allowed = ", ".join(TYPES)
            said = f"an item of type {shown(kind)} is not served here; allowed: {allowed}"
            raise BadRequestError(name, said)
        if kind == OUTPUT and isinstance(item.get("output"), list) and item.keys() >= OF_ITS_OWN:
            said = "an output in parts is not served beside created_by; allowed: one of the two"
            raise BadRequestError(name, said)
        if kind != MESSAGE:
            continue
        if not isinstance(item.get("role"), str):
            raise BadRequestError(name, "a message needs a role")
        content = item.get("content")
        if content == []:
            raise BadRequestError(name, "a message needs content")
        # Only a message that says its type becomes the object that vLLM reads a text of.
        if item.get("type") == MESSAGE and isinstance(content, list) and _refuses(content[0]):
            said = "a message that begins with a refusal is not served here; allowed: output_text"
            raise BadRequestError(name, said)


def _refuses(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "refusal"
