"""Ray Serve LLM's ingress behind our door: what is wrong with a request is a 400 that names it."""

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from ray.exceptions import ActorDiedError, RayTaskError
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ErrorInfo,
    ErrorResponse,
    ModelCard,
)
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from ray.serve.exceptions import BackPressureError
from vllm.exceptions import VLLMValidationError

from replicas.admission.answers import HEADERS
from serve_app.ingress import AdmissionIngress
from tests.vllm.door_routes import rays_ingress

PATH = "/v1/completions"
CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
INTERNALS = ("pid=", "ip=", "actor_id", "/home/", "site-packages", "Traceback", "exception:")


async def ask(
    method: str, path: str, content: bytes = b"", headers: Any = JSON, **made: Any
) -> httpx.Response:
    ingress = await rays_ingress(**made)
    app = await ingress.__serve_build_asgi_app__()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    context = SimpleNamespace(servable_object=ingress)  # by which a route finds its own
    with patch("ray.serve.get_replica_context", lambda: context):
        async with httpx.AsyncClient(transport=transport, base_url="http://r") as client:
            return await client.request(method, path, content=content, headers=headers)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """An answer in OpenAI's shape, that tells nothing of the cluster."""
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["code"], type(error["type"])) == (answer.status_code, str)
    assert not [word for word in INTERNALS if word in answer.text]
    return dict(error)


@pytest.mark.parametrize(
    ("path", "content", "headers", "param"),
    [
        (PATH, b'{"model":"m","prompt":"\\ud800 x","max_tokens":2}', JSON, "prompt"),
        (PATH, b'{"model": "m", "prompt": "a"}', {}, "content-type"),
        (PATH, b'{"model": "m", "prompt": "a"}', {"content-type": "text/plain"}, "content-type"),
        (
            CHAT,
            b'{"messages": []}',
            {"content-type": "application/x-www-form-urlencoded"},
            "content-type",
        ),
        (PATH, b"", JSON, "body"),
        (PATH, b"{", JSON, "body"),
        (PATH, b"\xff\xfe\xfd", JSON, "body"),
        (PATH, b"[1]", JSON, "body"),
        (PATH, b'{"prompt": "a", "n": ' + b"9" * 5000 + b"}", JSON, "body"),
        (PATH, b'{"prompt": "a", "temperature": [NaN]}', JSON, "temperature"),
        (PATH, b'{"prompt": "a", "max_tokens": Infinity}', JSON, "max_tokens"),
        (CHAT, b'{"model": "m"}', JSON, "messages"),
        (CHAT, b'{"messages": [{"role": 1}]}', JSON, "messages"),
        ("/v1/embeddings", b'{"model": "m"}', JSON, None),
    ],
)
async def test_a_malformed_body_is_a_400_that_names_the_field(path, content, headers, param):
    answer = await ask("POST", path, content, headers)
    error = error_of(answer)
    assert answer.status_code == 400
    assert param is None or error["param"] == param


async def test_health_is_served_and_an_unknown_model_is_a_404_in_openais_shape() -> None:
    assert (await ask("GET", "/health")).status_code == 200
    answer = await ask("POST", PATH, b'{"model": "nope", "prompt": "a"}')
    assert answer.status_code == 404
    assert "nope" in error_of(answer)["message"]
    assert error_of(await ask("GET", "/v1/models/nope"))["code"] == 404


async def test_ping_is_served_and_only_what_rays_app_has_is_said_to_be_closed() -> None:
    for method in ("GET", "POST"):
        assert (await ask(method, "/ping")).status_code == 200
    for method, path, closed in (
        ("POST", "/tokenize", True),
        ("GET", "/metrics", False),
        ("GET", "/version", False),
    ):
        said = error_of(await ask(method, path))["message"]
        assert ("extra_paths" in said) == closed


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_what_is_vllms_alone_is_said_to_need_direct_streaming(path: str) -> None:
    answer = await ask("POST", path)
    error = answer.json()["error"]
    assert (answer.status_code, "direct streaming has it" in error["message"]) == (404, True)
    assert ("code" in error) == (path == "/v1/responses")  # Anthropic's shape is another
    assert error["type"] == "not_found_error"


async def test_the_name_that_stands_for_several_is_a_model_like_others() -> None:
    plain = {"object": "model", "owned_by": "us", "permission": []}
    cards = {name: ModelCard(id=name, metadata={"of": name}, **plain) for name in ("small", "big")}
    made = {"cards": cards, "auto_model": {"default": "small"}}
    answers = [await ask("GET", path, **made) for path in ("/v1/models", "/v1/models/auto")]
    listed, auto = (answer.json() for answer in answers)
    assert [one["id"] for one in listed["data"]] == ["small", "big", "auto"]
    assert auto == listed["data"][2] == listed["data"][0] | {"id": "auto"}


@pytest.mark.parametrize("path", [PATH, CHAT])
async def test_a_request_for_it_goes_where_a_rule_says(path: str) -> None:
    async def from_replica(_: Any, *, body: Any, **__: Any) -> AsyncIterator[Any]:
        yield REFUSED if body.model == "big" else f"data: {body.model}\n\n"

    rule = {"model": "big", "prompt_tokens": 50}
    made = {"auto_model": {"default": "small", "rules": [rule]}}
    for text, status, sent in (("a", 200, "small"), ("a" * 200, 429, None)):
        asked = {"model": "auto", "stream": True, "prompt": text}
        asked["messages"] = [{"role": "user", "content": text}]
        with patch.object(OpenAiIngress, "_get_response", from_replica):
            answer = await ask("POST", path, json.dumps(asked).encode(), **made)
        assert (answer.status_code, answer.headers.get("x-brimful-model")) == (status, sent)
    for other in ("/v1/embeddings", "/v1/score"):
        asked = {"model": "auto", "input": "a", "text_1": "a", "text_2": "b"}
        answer = await ask("POST", other, json.dumps(asked).encode(), **made)
        assert (answer.status_code, error_of(answer)["code"]) == (404, 404)


def _of_replica(cause: Exception) -> RayTaskError:
    text = 'Traceback\n  File "/home/a.py"\nboth (pid=3, ip=10.0.0.1, actor_id=07)'
    return RayTaskError("serve", text, cause).as_instanceof_cause()


REFUSED = ErrorResponse(
    error=ErrorInfo.model_validate(
        {"message": "late", "type": "rate_limit_error", "code": 429, HEADERS: {"retry-after": "3"}}
    )
)


@pytest.mark.parametrize("path", [PATH, "/v1/embeddings"])
@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (RuntimeError("open(/home/ray/weights)"), 500),
        (_of_replica(RuntimeError("at /home/ray/weights")), 500),
        (_of_replica(ValueError("both (pid=3, ip=10.0.0.1)")), 500),
        (_of_replica(TypeError("at /home/ray/weights")), 500),
        (_of_replica(VLLMValidationError("a prompt that is too long")), 400),
        (ValueError("a prompt that is too long"), 400),
        (ActorDiedError(), 503),
        (BackPressureError(1, 1), 503),
        (None, 429),
    ],
    ids=str,
)
async def test_what_a_replica_raises_tells_nothing_of_the_cluster(path, raised, status):
    async def from_replica(_: Any, **__: Any) -> AsyncIterator[Any]:
        if raised is not None:
            raise raised
        yield REFUSED

    body = json.dumps({"model": "m", "prompt": "a", "input": "a"}).encode()
    with patch.object(OpenAiIngress, "_get_response", from_replica):
        answer = await ask("POST", path, body)
    error = error_of(answer)
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status in (429, 503))
    if status == 400:
        assert error["message"] == "a prompt that is too long"


async def test_a_stream_whose_replica_fails_ends_with_an_error_event() -> None:
    async def from_replica(_: Any, **__: Any) -> AsyncIterator[Any]:
        yield 'data: {"choices": []}\n\n'
        raise ActorDiedError

    body = b'{"model": "m", "prompt": "a", "stream": true}'
    with patch.object(OpenAiIngress, "_get_response", from_replica):
        answer = await ask("POST", PATH, body)
    first, error, last = answer.text.strip().split("\n\n")
    assert first == 'data: {"choices": []}'
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 500
    assert last == "data: [DONE]"
    assert not [word for word in INTERNALS if word in answer.text]


def test_an_ingress_that_is_removed_has_time_to_end_its_streams() -> None:
    assert AdmissionIngress.get_deployment_options()["graceful_shutdown_timeout_s"] == 1800
