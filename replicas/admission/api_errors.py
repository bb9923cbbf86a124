"""Errors in the shape of each API: OpenAI's, its responses', Anthropic's. Pure."""

import json
from typing import Any

from replicas.admission.answers import SERVER_ERROR, Answer, kind

RESPONSES, MESSAGES = "/responses", "/v1/messages"
ANTHROPICS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
STATUS = {name: status for status, name in reversed(ANTHROPICS.items())}


def is_messages(path: str) -> bool:
    """Whether a path belongs to Anthropic's API.

    Args:
        path: without the application's prefix.
    """
    return path == MESSAGES or path.startswith(f"{MESSAGES}/")


def anthropic_error(status: int, message: str) -> dict[str, Any]:
    """An error in Anthropic's shape; its type follows from the status."""
    usual = "api_error" if status >= SERVER_ERROR else ANTHROPICS[400]
    return {"type": "error", "error": {"type": ANTHROPICS.get(status, usual), "message": message}}


def as_anthropics(status: int, body: bytes) -> bytes:
    """An error's body in Anthropic's shape; unchanged if it cannot be read."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return body
    found = told.get("error", told.get("detail")) if isinstance(told, dict) else None
    message = found.get("message") if isinstance(found, dict) else found
    return _json(anthropic_error(status, message)) if isinstance(message, str) else body


def last_event(path: str, answer: Answer, number: int) -> bytes:
    """The last event of a stream that cannot go on, in the shape of the path's API.

    Args:
        path: of the request, without the application's prefix.
        number: events that were sent before.
    """
    if is_messages(path):
        return anthropic_event(answer.status, answer.message)
    if path.rstrip("/").endswith(RESPONSES):
        return _responses_event(answer.status, answer.message, number)
    return error_frame(answer)


def anthropic_event(status: int, message: str) -> bytes:
    """The event that ends a stream of messages."""
    return b"event: error\ndata: " + _json(anthropic_error(status, message)) + b"\n\n"


def error_frame(answer: Answer) -> bytes:
    """An error as the last event of a stream of completions, as vLLM has them."""
    return b"data: " + _json(answer.body) + b"\n\ndata: [DONE]\n\n"


def _responses_event(status: int, message: str, number: int) -> bytes:
    # OpenAI's reference has the fields at the top; its API sends them in ``error``, which makes its
    # clients raise.
    error = {"type": kind(status), "code": str(status), "message": message, "param": None}
    event = {**error, "type": "error", "sequence_number": number, "error": error}
    return b"event: error\ndata: " + _json(event) + b"\n\n"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
