"""Answers that stock clients understand."""

import pickle

import pytest

from replicas.admission.answers import BadRequestError, RefusedError, refusal


@pytest.mark.parametrize(
    ("reason", "status", "type_"),
    [
        ("deadline", 429, "rate_limit_error"),
        ("queue_timeout", 503, "service_unavailable"),  # another replica may serve it
        ("engine_failed", 503, "service_unavailable"),
    ],
)
def test_a_refusal_is_an_openai_error_with_a_time_to_come_again(reason, status, type_):
    answer = refusal(reason, "gold", "in 3.0 s", 2.0, 0.0)
    error = answer.body["error"]
    assert (answer.status, error["type"], error["code"], error["param"]) == (
        *(status, type_, status, None),
    )
    assert error["message"].startswith("Not served (class gold): ")
    assert error["message"].endswith(" (in 3.0 s).")
    assert answer.headers == {
        "x-brimful-reason": reason,
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


def test_bad_input_is_not_tried_again() -> None:
    answer = BadRequestError("priority", "no", 431).answer
    assert answer.body["error"]["param"] == "priority"
    assert answer.headers == {"x-brimful-reason": "bad_request"}


def test_a_refusal_survives_the_way_between_processes() -> None:
    for error in (
        RefusedError(refusal("shed", "a", "", 3.0, 0.0)),
        BadRequestError("priority", "no", 431),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.answer) == (type(error), str(error), error.answer)
