"""What a refused request is answered: a status and headers that stock clients obey. Pure.

OpenAI's client tries again after ``retry-after-ms`` or ``Retry-After`` up to 120 s, as soon as it
is told and without jitter of its own, so the jitter is ours.
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
    "queue_full": "as many requests wait as may",
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
HEADERS = "brimful_headers"  # of Ray Serve LLM's ErrorInfo: those of the answer that it carries
JITTER = 0.5  # of the time to wait, on top of it


def kind(status: int) -> str:
    """The type of an error in OpenAI's API."""
    return TYPES.get(status, "server_error" if status >= SERVER_ERROR else TYPES[400])


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer that ends a request before its first byte.

    Args:
        more: headers on top of those that follow from the rest.
    """

    status: int
    reason: Reason
    message: str
    param: str | None = None
    retry_s: float | None = None
    more: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        """By their names in lower case."""
        headers: dict[str, str] = {"x-brimful-reason": self.reason, **dict(self.more)}
        if self.retry_s is not None:
            headers["retry-after"] = str(math.ceil(self.retry_s))
            headers["retry-after-ms"] = str(math.ceil(self.retry_s * 1000))
            if self.retry_s > LONGEST_RETRY_S:
                headers["x-should-retry"] = "false"
        return headers

    @property
    def body(self) -> dict[str, Any]:
        """An error as OpenAI's API has it."""
        return error_body(self.status, self.message, self.param)


def error_body(
    status: int, message: str, param: str | None = None, kind_: str | None = None
) -> dict[str, Any]:
    """An error as OpenAI's API has it; ``kind_``: if it is not the status' own."""
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
    """A request that cannot be meant so.

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
        jitter: a draw from 0 to 1, so that those refused together do not come back together.
    """
    wait_s = max(retry_s or 0.0, LEAST_RETRY_S) * (1 + JITTER * jitter)
    numbers = f" ({detail})" if detail else ""
    message = f"Not served (class {name}): {SAID[reason]}{numbers}."
    return Answer(STATUS[reason], reason, message, retry_s=wait_s)


def no_replica(message: str, jitter: float, reason: Reason = "no_replica") -> Answer:
    """The answer to a request whose replica is gone, busy or without engine: another may serve it.

    Args:
        jitter: a draw from 0 to 1.
    """
    wait_s = LEAST_RETRY_S * (1 + JITTER * jitter)
    return Answer(503, reason, message, retry_s=wait_s)


def cut(message: str) -> Answer:
    """The answer to a request that a clock ends: sent again, it would take as long."""
    return Answer(408, "request_timeout", message, more=(("x-should-retry", "false"),))
