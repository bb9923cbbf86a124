"""The door in front of the two real apps: vLLM's own, and Ray Serve LLM's ingress."""

import gzip
from pathlib import Path
from typing import cast

import httpx
import pytest
from vllm.v1.engine.async_llm import AsyncLLM

from replicas.door.auth import Door, Rules
from replicas.door.paths import ALWAYS
from replicas.door.settings import parse_security
from replicas.server.app import guard_app
from replicas.server.egress import LeavingTokens
from replicas.server.stream_ends import OpenAnswers
from tests.vllm.door_routes import rays_app, reached, routes, vllms_app, websockets, with_door


async def test_of_vllms_routes_those_that_clients_need_are_reached(tiny_llama: Path) -> None:
    app = with_door(vllms_app(tiny_llama), {})
    paths = {path for _, path in routes(app)}
    assert {
        "/invocations",
        "/scale_elastic_ep",
        "/tokenize",
        "/metrics/",
        "/collective_rpc",
    } < paths
    assert len(paths) > 40
    served = await reached(app)
    assert served == {
        "GET /health",
        "GET /ping",
        "POST /ping",
        "GET /v1/models",
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "POST /v1/embeddings",
        "POST /v1/responses",
    }
    assert served | {"GET /v1/models/*"} == set(ALWAYS)
    sockets = websockets(app)
    assert sockets
    assert not [path for path in sockets if f"GET {path}" in ALWAYS]


GZIP = gzip.compress(b'{"model": "m", "prompt": "a"}', mtime=0)
LATIN_1 = '{"prompt": "\xe9"}'.encode("latin-1")
LONG_NUMBER = b'{"n": ' + b"9" * 5000 + b"}"


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "said"),
    [
        ("GET", "/v1/nothing", b"", 404, "GET '/v1/nothing': Not Found"),
        ("DELETE", "/v1/completions", b"", 405, "Method Not Allowed"),
        ("DELETE", "/v1/messages", b"", 405, "Method Not Allowed"),
        *[
            ("POST", path, content, 400, "; allowed: JSON in UTF-8, not compressed")
            for path in ("/v1/completions", "/v1/messages", "/v1/responses", "/tokenize")
            for content in (GZIP, LATIN_1, LONG_NUMBER)
        ],
    ],
)
async def test_fastapis_own_errors_have_the_shape_of_the_api(
    tiny_llama: Path, method: str, path: str, content: bytes, status: int, said: str
) -> None:
    """Direct streaming, with all paths open: vLLM's app has no handler for these."""
    app = vllms_app(tiny_llama)
    door = Door(Rules(parse_security({"extra_paths": ["/v1/*", "/tokenize"]})))
    guard_app(app, cast("AsyncLLM", None), door, OpenAnswers(), LeavingTokens(on=True))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as client:
        json_type = {"content-type": "application/json"}
        answer = await client.request(method, path, content=content, headers=json_type)
    error = answer.json()["error"]
    assert (answer.status_code, said in error["message"]) == (status, True)
    assert ("allow" in answer.headers) == (status == 405)
    if path.startswith("/v1/messages"):
        assert (answer.json()["type"], error["type"]) == ("error", "invalid_request_error")
    else:
        assert error.keys() == {"message", "type", "param", "code"}
        assert (error["code"], error["param"]) == (status, "body" if content else None)


async def test_of_rays_routes_those_that_clients_need_are_reached() -> None:
    app = await rays_app()
    assert {"/tokenize", "/detokenize", "/docs"} < {path for _, path in routes(app)}
    assert await reached(app) == {
        "GET /health",
        "GET /ping",
        "POST /ping",
        "GET /v1/models",
        "GET /v1/models/model",
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "POST /v1/embeddings",
    }
