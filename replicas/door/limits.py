"""Bounds on a request: fields that multiply its cost, and values that the engine cannot be sent.
Pure.

vLLM's own bounds hold as well: the model's length, ``max_logprobs``.
"""

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from controller.validation import shown
from replicas.admission.answers import BadRequestError
from replicas.admission.asked import prompts_of
from replicas.door.settings import Limits

WANTED = {"max_tokens", "max_completion_tokens", "max_output_tokens"}  # numbers of tokens
PROMPTS = ("prompt", "prompt_embeds", "input")
A_CONVERSATION = ("/v1/responses", "input")  # one prompt with any number of items
# Fields with the number of wanted tokens, for paths on which vLLM's default is the model's length;
# the first is written if none is set.
UNBOUNDED = {
    "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
    "/v1/responses": ("max_output_tokens",),
}
# Fields that vLLM passes to its engine as they are. They go by msgpack, which has no larger whole
# numbers than MOST_INT: the API would answer 500 and never free its state of the request.
# Fields in which text is read as a whole number, too:
WHOLE = {"allowed_token_ids", "logprob_token_ids", "max_tokens", "min_tokens", "stop_token_ids"}
WHOLE |= {"routed_experts_prompt_start", "stream_interval", "thinking_token_budget", "top_k"}
WHOLE |= {"repetition_detection"}
# Fields with anything: a schema, parameters, input of a reasoning parser.
OBJECTS = {"structured_outputs", "response_format", "text", "chat_template_kwargs"}
OBJECTS |= {"output_config", "kv_transfer_params", "ec_transfer_params", "vllm_xargs"}
TEXTS = {"stop", "bad_words", "cache_salt", "request_id", "session_id", "documents"}
SENT = WHOLE | OBJECTS | TEXTS
LEAST_INT, MOST_INT = -(2**63), 2**64 - 1
FEWEST_DIGITS = len(str(LEAST_INT)) - 1  # of a number beyond these
AS_VLLM_READS: TypeAdapter[int] = TypeAdapter(int)
SURROGATE = re.compile("[\ud800-\udfff]")
# Origins of a lone surrogate: an escape of JSON, its three bytes, or UTF-16 and -32.
MAY_BE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\x00")


def check_sent(fields: Mapping[str, Any], body: bytes | None = None) -> None:
    """Refuse whole numbers that cannot be sent to vLLM's engine, and text that is not Unicode.

    Args:
        body: source of the fields, if known: few bodies can hold such text.

    Raises:
        BadRequestError: naming the field, the value and what is allowed.
    """
    if body is None or MAY_BE_SURROGATE.search(body):
        _check_text(fields)
    names = fields.keys() & SENT
    if isinstance(fields.get("tool_choice"), dict) or fields.get("tool_choice") == "required":
        names |= fields.keys() & {"tools"}  # vLLM makes the answer's schema from theirs
    for name in names:
        for one in _parts(fields[name]):
            if not LEAST_INT <= _whole(one, name in WHOLE) <= MOST_INT:
                raise BadRequestError(
                    name, f"{shown(one)} is not allowed: a whole number of at most 64 bits"
                )


def _check_text(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        for one in (name, *_parts(value)):
            if isinstance(one, str) and SURROGATE.search(one):
                raise BadRequestError(
                    SURROGATE.sub("\ufffd", name),
                    f"{shown(one)} is not allowed: text that is not Unicode (a lone surrogate)",
                )


def _parts(value: Any) -> Iterator[Any]:
    """The value and all its parts, keys included."""
    below = [value]
    while below:
        one = below.pop()
        if isinstance(one, dict):
            below += one
            below += one.values()
        elif isinstance(one, list):
            below += one
        else:
            yield one


def _whole(value: Any, text_too: bool) -> int:
    """0 for anything but a whole number."""
    if isinstance(value, int):
        return value
    if text_too and isinstance(value, str) and len(value) >= FEWEST_DIGITS:
        with contextlib.suppress(ValidationError):
            return AS_VLLM_READS.validate_python(value)
    return 0


def check_fields(fields: Mapping[str, Any], limits: Limits, path: str = "") -> None:
    """Refuse a request that asks for more than is allowed.

    Args:
        path: without the application's prefix.

    Raises:
        BadRequestError: naming the field, its value and the limit.
    """
    most = math.inf if limits.max_tokens is None else limits.max_tokens
    for name in fields.keys() & WANTED:
        if _number(fields[name]) > most:
            raise BadRequestError(
                name,
                f"{shown(fields[name])} is not allowed: at most {limits.max_tokens}"
                " (security.limits.max_tokens of this server)",
            )
    several = [name for name in PROMPTS if name in fields and (path, name) != A_CONVERSATION]
    prompts, wanted = max(sum(_prompts(fields[name]) for name in several), 1), fields.get("n", 1)
    if prompts * max(_number(wanted), 1) > limits.max_sequences:
        raise BadRequestError(
            "n" if "n" in fields else several[0],
            f"{shown(wanted)} for each of {prompts} prompts is not allowed: together at most"
            f" {limits.max_sequences} (security.limits.max_sequences of this server)",
        )


def _number(value: Any) -> float:
    """The number that vLLM's models would read, from text as well; 0 for others."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(number) else number


def _prompts(value: Any) -> int:
    return prompts_of(value) if isinstance(value, list) else 0


def bounded(path: str, fields: Mapping[str, Any], limits: Limits) -> bytes | None:
    """The body with the token limit added; None if the request has its own.

    Args:
        path: without the application's prefix.
    """
    if limits.max_tokens is None:
        return None
    if path == "/v1/completions":
        # Without the field vLLM generates 16 tokens; with null, up to the model's length.
        wanted = None if "max_tokens" in fields and fields["max_tokens"] is None else True
        names: tuple[str, ...] = ("max_tokens",)
    else:
        names = UNBOUNDED.get(path, ())
        wanted = next((True for name in names if fields.get(name) is not None), None)
    if wanted or not names:
        return None
    return json.dumps({**fields, names[0]: limits.max_tokens}).encode()
