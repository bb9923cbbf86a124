"""Answers to refused requests: a status and headers that stock clients obey. Pure.

OpenAI's client retries after ``retry-after-ms`` or ``Retry-After`` up to 120 s, exactly then, so
the jitter is added here.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

from controller.errors import BrimfulError

Reason = Literal[
    "queue_full",
    "shed",
    "deadline",
    "queue_timeout",
    "engine_failed",
    "bad_request",
    "no_such_path",
    "no_such_method",
    "no_key",
    "wrong_key",
    "key_busy",
    "no_replica",
    "request_timeout",
]
STATUS: dict[Reason, int] = {
    "queue_full": 429,
    "shed": 429,
    "deadline": 429,
    "queue_timeout": 503,
    "engine_failed": 503,
    "bad_request": 400,
}
SAID: dict[Reason, str] = {
    "queue_full": "the queue is full",
    "shed": "close to its capacity, this replica refuses requests of this class first",
    "deadline": "its first token would come too late",
    "queue_timeout": "it waited too long for its first token",
    "engine_failed": "the engine failed before the first token",
    "bad_request": "",
}
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}
CLIENT_ERROR, SERVER_ERROR = 400, 500
LONGEST_RETRY_S = 120.0  # what OpenAI's client waits at most
LEAST_RETRY_S = 0.5
HEADERS = "brimful_headers"  # key in Ray Serve LLM's ErrorInfo for the headers of the answer
JITTER = 0.5  # share of the wait that is added at random


def kind(status: int) -> str:
    """The error type of OpenAI's API."""
    return TYPES.get(status, "server_error" if status >= SERVER_ERROR else TYPES[400])


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer that ends a request before its first byte.

    Args:
        more: additional headers.
    """

    status: int
    reason: Reason
    message: str
    param: str | None = None
    retry_s: float | None = None
    more: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        """Headers by lower-case name."""
        headers: dict[str, str] = {"x-brimful-reason": self.reason, **dict(self.more)}
        if self.retry_s is not None:
            headers["retry-after"] = str(math.ceil(self.retry_s))
            headers["retry-after-ms"] = str(math.ceil(self.retry_s * 1000))
            if self.retry_s > LONGEST_RETRY_S:
                headers["x-should-retry"] = "false"
        return headers

    @property
    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        return error_body(self.status, self.message, self.param)


def error_body(
    status: int, message: str, param: str | None = None, kind_: str | None = None
) -> dict[str, Any]:
    """An error in OpenAI's shape; ``kind_``: its type, if not that of the status."""
    name = kind_ or kind(status)
    return {"error": {"message": message, "type": name, "param": param, "code": status}}


class RefusedError(BrimfulError):
    """A request is not served; ``answer`` says why and when to come again."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(answer.message)

    def __reduce__(self) -> Any:
        return type(self), (self.answer,)


class BadRequestError(RefusedError, ValueError):
    """A request that is invalid.

    Args:
        param: the field.
        message: its value, and what is allowed.
        status: a 4xx.
    """

    def __init__(self, param: str, message: str, status: int = 400) -> None:
        self._given = param, message, status
        super().__init__(Answer(status, "bad_request", f"{param}: {message}", param=param))

    def __reduce__(self) -> Any:
        return type(self), self._given


def refusal(reason: Reason, name: str, detail: str, retry_s: float | None, jitter: float) -> Answer:
    """The answer to a request that is not served now.

    Args:
        name: its class.
        detail: numbers behind the reason; may be empty.
        retry_s: when to come again; None: unknown, soon.
        jitter: random number from 0 to 1, so that requests refused together return at different
            times.
    """
    wait_s = max(retry_s or 0.0, LEAST_RETRY_S) * (1 + JITTER * jitter)
    numbers = f" ({detail})" if detail else ""
    message = f"Not served (class {name}): {SAID[reason]}{numbers}."
    return Answer(STATUS[reason], reason, message, retry_s=wait_s)


def no_replica(message: str, jitter: float, reason: Reason = "no_replica") -> Answer:
    """The answer to a request whose replica is gone, busy or without engine: another may serve it.

    Args:
        jitter: random number from 0 to 1.
    """
    wait_s = LEAST_RETRY_S * (1 + JITTER * jitter)
    return Answer(503, reason, message, retry_s=wait_s)


def cut(message: str) -> Answer:
    """The answer to a request that ran out of time: a retry would take as long."""
    return Answer(408, "request_timeout", message, more=(("x-should-retry", "false"),))
