"""The door in front of the two real apps: vLLM's own, and Ray Serve LLM's ingress."""

from pathlib import Path
from typing import Any

import pytest

from replicas.door.http import DoorMiddleware
from replicas.door.paths import ALWAYS
from serve_app.ingress import AdmissionIngress, logger
from tests.vllm.door_routes import answers, rays_app, routes, vllms_app, websockets, with_door


async def reached(app: Any) -> set[str]:
    return {route for route, answer in (await answers(app)).items() if answer == "served"}


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


async def test_rays_ingress_goes_by_a_changed_block_and_keeps_the_old_one_over_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(logger, "error", lambda text, *args: said.append(text % args))
    app = await rays_app()
    middleware = next(m for m in app.user_middleware if m.cls is DoorMiddleware)
    ingress = AdmissionIngress({}, {}, security={"extra_paths": ["/tokenize"]})
    ingress._door = middleware.kwargs["door"]
    ingress.reconfigure(None)
    assert "POST /tokenize" in await reached(app)
    ingress.reconfigure({"security": {"extra_paths": ["POST /detokenize"]}})
    ingress.reconfigure({"security": {"extra_paths": ["detokenize"]}})
    found = await reached(app)
    assert "POST /detokenize" in found
    assert "POST /tokenize" not in found
    assert [line.count("what held before holds on: user_config.security") for line in said] == [1]
