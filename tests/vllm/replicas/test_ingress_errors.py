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
)
from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
from ray.serve.exceptions import BackPressureError
from vllm.exceptions import VLLMValidationError

from replicas.admission.answers import HEADERS
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
