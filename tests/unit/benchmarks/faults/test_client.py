"""How a request ended, by what OpenAI's client raised."""

import httpx
import pytest
from openai import APIConnectionError, APIError, APIStatusError

from benchmarks.faults.client import Outcome, count, ended

REQUEST = httpx.Request("POST", "http://r/v1/completions")


def status(code: int, **headers: str) -> APIStatusError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return APIStatusError(
        "", response=httpx.Response(code, headers=named, request=REQUEST), body=None
    )


@pytest.mark.parametrize(
    ("error", "begun", "finished", "end"),
    [
        (None, True, True, "whole"),
        (None, True, False, "silent"),
        (None, False, False, "silent"),
        (status(429, x_brimful_reason="shed"), False, False, "refused"),
        (status(503, x_brimful_reason="engine_failed"), False, False, "failed"),
        (status(500), False, False, "failed"),
        (APIConnectionError(request=REQUEST), False, False, "failed"),
        (APIConnectionError(request=REQUEST), True, False, "cut"),
        (APIError("dead", REQUEST, body=None), True, False, "event"),
    ],
)
def test_how_a_request_ended(
    error: Exception | None, begun: bool, finished: bool, end: str
) -> None:
    assert ended(error, begun, finished) == end


def test_lost_is_who_was_accepted_and_told_nothing() -> None:
    counts = count(
        [
            Outcome(0.0, "whole", 1, 0.5),
            Outcome(0.1, "cut", 1, 0.2, "x"),
            Outcome(0.2, "silent", 2, None),
            Outcome(0.3, "event", 1, 0.1, "y"),
        ]
    )
    assert (counts.sent, counts.lost, counts.retried, counts.worst_ttft_s) == (4, 2, 1, 0.5)
    assert counts.errors == {"cut: x": 1, "event: y": 1}
