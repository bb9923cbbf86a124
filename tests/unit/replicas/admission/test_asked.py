"""What a request asks for, bad input that names its field, and answers that clients understand."""

import pickle
from typing import Any

import pytest

from controller.classes import one_class
from replicas.admission.answers import BadRequestError, RefusedError, refusal
from replicas.admission.asked import read_request
from tests.unit.replicas.admission.builders import CLASSES


def read(headers: dict[str, str] | None = None, **body: Any) -> Any:
    return read_request(headers or {}, body, CLASSES, 5.0)


@pytest.mark.parametrize(
    ("headers", "body", "name"),
    [
        ({}, {"service_tier": "gold"}, "gold"),
        ({}, {"service_tier": "auto"}, "silver"),
        ({}, {"service_tier": "default"}, "silver"),
        ({}, {"service_tier": "standard_only"}, "silver"),
        ({}, {"service_tier": None}, "silver"),
        ({"x-llm-d-inference-objective": "batch"}, {}, "batch"),
        ({"x-llm-d-inference-objective": "batch"}, {"service_tier": "gold"}, "batch"),
    ],
)
def test_body_and_header_name_a_class(headers: Any, body: Any, name: str) -> None:
    assert read(headers, **body).name == name


def test_vllms_own_priorities_keep_working() -> None:
    assert read(priority=-3).priority == -3
    assert read({"x-vllm-priority": "7"}, priority=-3).priority == 7
    assert read(priority=0).priority == 0
    assert read(priority=4.0).priority == 4


@pytest.mark.parametrize("name", ["x-request-timeout-seconds", "x-first-token-timeout-seconds"])
def test_a_request_brings_its_own_deadline(name: str) -> None:
    asked = read({name: "2.5"})
    assert (asked.deadline_s, asked.timeout_s) == (2.5, 2.5)


def test_without_classes_their_names_mean_nothing() -> None:
    asked = read_request({}, {"service_tier": "flex"}, one_class(None), 0.0, named_classes=False)
    assert (asked.name, asked.named) == ("default", False)


@pytest.mark.parametrize(
    ("headers", "body", "param"),
    [
        ({}, {"service_tier": "platinum"}, "service_tier"),
        ({}, {"service_tier": ""}, "service_tier"),
        ({}, {"service_tier": 7}, "service_tier"),
        ({}, {"service_tier": ["gold"]}, "service_tier"),
        ({"x-llm-d-inference-objective": "x" * 9000}, {}, "x-llm-d-inference-objective"),
        ({"x-request-timeout-seconds": "-1"}, {}, "x-request-timeout-seconds"),
        ({"x-request-timeout-seconds": "0"}, {}, "x-request-timeout-seconds"),
        ({"x-request-timeout-seconds": "1e9"}, {}, "x-request-timeout-seconds"),
        ({"x-request-timeout-seconds": "inf"}, {}, "x-request-timeout-seconds"),
        ({"x-request-timeout-seconds": "nan"}, {}, "x-request-timeout-seconds"),
        ({"x-request-timeout-seconds": "soon"}, {}, "x-request-timeout-seconds"),
        ({"x-vllm-priority": "high"}, {}, "x-vllm-priority"),
        ({"x-vllm-priority": "9" * 5000}, {}, "x-vllm-priority"),
        ({"x-vllm-priority": str(2**31)}, {}, "x-vllm-priority"),
        ({}, {"priority": 2**70}, "priority"),
        ({}, {"priority": -(2**31)}, "priority"),
        ({}, {"priority": 1.5}, "priority"),
        ({}, {"priority": float("nan")}, "priority"),
        ({}, {"priority": True}, "priority"),
        ({}, {"priority": [1]}, "priority"),
    ],
)
def test_bad_input_names_its_field(headers: Any, body: Any, param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(headers, **body)
    assert (caught.value.answer.param, caught.value.answer.status) == (param, 400)
    assert str(caught.value).startswith(f"{param}: ")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("headers", "body", "name", "named"),
    [
        ({}, {}, "batch", False),
        ({}, {"service_tier": "auto"}, "batch", True),
        ({}, {"service_tier": "default"}, "batch", True),
        ({}, {"service_tier": "standard_only"}, "batch", True),
        ({}, {"service_tier": "silver"}, "silver", True),
        ({"x-llm-d-inference-objective": "silver"}, {"service_tier": "gold"}, "silver", True),
    ],
)
def test_a_keys_first_class_is_that_of_its_requests(headers, body, name, named):
    known = {"x-brimful-classes": "batch,silver", **headers}
    one = read_request(known, body, CLASSES, 0.0)
    assert (one.name, one.named) == (name, named)
    assert one.priority == CLASSES.by_name[name].priority


@pytest.mark.parametrize(
    ("headers", "body", "status", "param", "said"),
    [
        ({}, {"service_tier": "gold"}, 403, "service_tier", "'gold' is not allowed for this"),
        ({"x-llm-d-inference-objective": "gold"}, {}, 403, "x-llm-d-inference-objective", "'gold'"),
        ({}, {"service_tier": "glod"}, 400, "service_tier", "'glod' is not a class"),
        ({}, {"priority": -9}, 403, "priority", "this API key may not set a priority"),
        (
            {"x-vllm-priority": "-9"},
            {},
            403,
            "x-vllm-priority",
            "this API key may not set a priority",
        ),
        ({"x-brimful-classes": "other"}, {}, 403, "service_tier", "this API key is for class"),
    ],
)
def test_what_a_key_may_not_ask_for_is_a_403(headers, body, status, param, said):
    with pytest.raises(BadRequestError) as refused:
        read_request({"x-brimful-classes": "batch,silver", **headers}, body, CLASSES, 0.0)
    assert (refused.value.answer.status, refused.value.answer.param) == (status, param)
    assert str(refused.value).startswith(f"{param}: {said}")


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [("a", 1), ([1, 2, 3], 1), (["a", "b"], 2), ([[1], [2], [3]], 3), ([], 1), (None, 1), (7, 1)],
)
def test_a_request_has_as_many_prompts_as_vllm_makes_of_it(prompt: Any, prompts: int) -> None:
    assert read(prompt=prompt).prompts == prompts


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


def test_a_refusal_survives_the_way_between_processes() -> None:
    for error in (
        RefusedError(refusal("shed", "a", "", 3.0, 0.0)),
        BadRequestError("priority", "no", 403),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.answer) == (type(error), str(error), error.answer)
