"""Answers that stock clients understand."""

import pickle

import pytest

from replicas.admission.answers import Answer, RefusedError, bad_request, refusal


def test_a_refusal_is_an_openai_error_with_a_time_to_come_again() -> None:
    answer = refusal("deadline", "gold", "in 3.0 s, its deadline is in 1.0 s", 2.0, 0.0)
    assert answer.status == 429
    assert answer.body == {
        "error": {
            "message": "Not served (class gold): its first token would come too late"
            " (in 3.0 s, its deadline is in 1.0 s).",
            "type": "rate_limit_error",
            "param": None,
            "code": 429,
        }
    }
    assert answer.headers == {
        "x-brimful-reason": "deadline",
        "retry-after": "2",
        "retry-after-ms": "2000",
    }


@pytest.mark.parametrize(
    ("retry_s", "jitter", "header"),
    [(None, 0.0, "500"), (0.0, 1.0, "750"), (10.0, 0.5, "12500"), (0.1, 0.0, "500")],
)
def test_the_time_is_jittered_upwards(retry_s: float | None, jitter: float, header: str) -> None:
    answer = refusal("queue_full", "gold", "", retry_s, jitter)
    assert answer.headers["retry-after-ms"] == header


def test_above_two_minutes_nobody_is_to_come_again() -> None:
    assert "x-should-retry" not in refusal("shed", "a", "", 120.0, 0.0).headers
    assert refusal("shed", "a", "", 120.0, 0.1).headers["x-should-retry"] == "false"


@pytest.mark.parametrize("reason", ["queue_timeout", "engine_failed"])
def test_what_another_replica_may_serve_is_503(reason) -> None:
    answer = refusal(reason, "a", "", None, 0.0)
    assert answer.status == 503
    assert answer.body["error"]["type"] == "service_unavailable"


def test_bad_input_is_not_tried_again() -> None:
    answer = bad_request("priority", "priority: no", 431)
    assert answer.body["error"]["param"] == "priority"
    assert answer.headers == {"x-brimful-reason": "bad_request"}


def test_a_refusal_survives_the_way_between_processes() -> None:
    error = RefusedError(refusal("shed", "a", "", 3.0, 0.0))
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again.answer, Answer)
    assert again.answer == error.answer
