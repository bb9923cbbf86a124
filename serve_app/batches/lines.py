"""Lines of batch files: one request each, and one answer each. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.errors import BrimfulError
from controller.validation import shown

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
LONGEST_ID = 512  # characters of a custom_id
NO_CLASS = (None, "auto", "default")  # as OpenAI's API has it
EXPIRED, CANCELLED = "batch_expired", "batch_cancelled"
SAID = {
    EXPIRED: "the batch's completion window ended before this request did",
    CANCELLED: "the batch was cancelled before this request ended",
}


class LineError(BrimfulError, ValueError):
    """A line that is not a request.

    Attributes:
        custom_id: as far as it could be read.
    """

    def __init__(self, message: str, custom_id: str | None = None) -> None:
        self.custom_id = custom_id
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Line:
    """A request of a batch."""

    custom_id: str
    body: Mapping[str, Any]


def read_line(text: bytes, endpoint: str, service_tier: str | None = None) -> Line:
    """The request that a line holds.

    Args:
        endpoint: the batch's.
        service_tier: the class of every request; None: what the line says.

    Raises:
        LineError: naming the key, its value and what is allowed.
    """
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise LineError("the line is not JSON") from None
    if not isinstance(told, dict):
        raise LineError("the line is not a JSON object")
    name = told.get("custom_id")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_ID:
        raise LineError(f"custom_id: must be a text of 1 to {LONGEST_ID} characters")
    if told.get("method", "POST") != "POST":
        raise LineError(f"method: {shown(told['method'])} is not allowed: POST", name)
    if told.get("url") != endpoint:
        raise LineError(f"url: {shown(told.get('url'))} is not allowed: {endpoint}", name)
    body = told.get("body")
    if not isinstance(body, dict):
        raise LineError("body: must be a JSON object", name)
    for key in ("stream", "background"):
        if body.get(key):
            raise LineError(
                f"body.{key}: true is not allowed: answers of a batch are not streamed", name
            )
    if "priority" in body:
        raise LineError("body.priority is not allowed: the class of batches sets it", name)
    if service_tier is not None:
        # A client that may send batches may not have them served as online requests.
        if body.get("service_tier") not in (*NO_CLASS, service_tier):
            said = f"{shown(body['service_tier'])} is not allowed: {service_tier}"
            raise LineError(f"body.service_tier: {said}", name)
        body = {**body, "service_tier": service_tier}
    return Line(name, body)


def answer_line(
    line_id: str, custom_id: str | None, status: int, request_id: str, body: Any
) -> dict[str, Any]:
    """The line for an answer: of the output file, or of the error file."""
    response = {"status_code": status, "request_id": request_id, "body": body}
    return {"id": line_id, "custom_id": custom_id, "response": response, "error": None}


def error_line(line_id: str, custom_id: str | None, code: str, message: str) -> dict[str, Any]:
    """A line of the error file for a request without an answer."""
    error = {"code": code, "message": message}
    return {"id": line_id, "custom_id": custom_id, "response": None, "error": error}
