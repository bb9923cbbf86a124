"""Errors as Anthropic's API has them, for what ``/v1/messages`` answers. Pure."""

import json
from typing import Any

PATH = "/v1/messages"
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    431: "invalid_request_error",
    503: "overloaded_error",
}
STATUS = {kind: status for status, kind in reversed(TYPES.items())}
SERVER_ERROR = 500


def is_messages(path: str) -> bool:
    """Whether a path is of Anthropic's API.

    Args:
        path: without the application's prefix.
    """
    return path == PATH or path.startswith(f"{PATH}/")


def error(status: int, message: str) -> dict[str, Any]:
    """An error as Anthropic's clients read it; its type says what the status does."""
    usual = "api_error" if status >= SERVER_ERROR else TYPES[400]
    return {"type": "error", "error": {"type": TYPES.get(status, usual), "message": message}}


def error_event(status: int, message: str) -> bytes:
    """The event that ends a stream of messages."""
    return b"event: error\ndata: " + json.dumps(error(status, message)).encode() + b"\n\n"
