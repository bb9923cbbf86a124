"""The door in front of the two real apps: vLLM's own, and Ray Serve LLM's ingress."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest
from ray.llm._internal.serve.core.ingress.ingress import make_fastapi_ingress
from ray.llm._internal.serve.core.server.llm_server import _add_middleware_to_built_app
from starlette.routing import Mount, Route, WebSocketRoute
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import FrontendArgs

from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.paths import ALWAYS
from replicas.door.settings import parse_security
from serve_app.ingress import AdmissionIngress, logger

TASKS = ("generate", "embed", "classify", "score", "transcription", "realtime", "render")
DEVELOPERS = {"VLLM_SERVER_DEV_MODE": "1"}


@pytest.fixture(scope="module")
def vllms_app(tiny_llama: Path) -> Any:
    """Every route that vLLM has, those for its developers too; no engine is behind it."""
    args = AsyncEngineArgs(model=str(tiny_llama))
    space = argparse.Namespace(**(vars(FrontendArgs()) | vars(args)))
    with patch.dict(os.environ, DEVELOPERS):
        return build_app(space, TASKS, args.create_model_config())


@pytest.fixture(scope="module")
async def rays_app() -> Any:
    """That of an ingress replica, as Ray Serve makes it there."""
    wrapped = make_fastapi_ingress(AdmissionIngress)
    with patch("ray.serve.api.ServeUsageTag"):  # it would tell a cluster that there is an app
        ingress = wrapped.__new__(wrapped)
        await ingress.__init__({}, {})
    return await ingress.__serve_build_asgi_app__()


def asked(app: Any) -> Iterator[tuple[str, str]]:
    """A method and a path for each of the app's routes."""
    for route in app.routes:
        if isinstance(route, Mount):
            yield "GET", f"{route.path}/"
        elif isinstance(route, Route):
            path = route.path.replace("{", "").replace("}", "").replace(":path", "")
            yield from ((method, path) for method in sorted(route.methods or ()))


async def served(app: Any, door_refuses: Any = ("no_such_path", "no_such_method")) -> set[str]:
    """The routes of an app that a request reaches."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    found = set()
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as client:
        for method, path in asked(app):
            answer = await client.request(method, path, json={} if method == "POST" else None)
            if answer.headers.get("x-brimful-reason") not in door_refuses:
                found.add(f"{method} {path}")
    return found


def with_door(app: Any, **block: Any) -> Any:
    _add_middleware_to_built_app(app, DoorMiddleware, door=Door(Rules(parse_security(block))))
    return app


async def test_of_vllms_routes_those_that_clients_need_are_reached(vllms_app: Any) -> None:
    routes = {path for _, path in asked(vllms_app)}
    assert {
        "/invocations",
        "/scale_elastic_ep",
        "/tokenize",
        "/metrics/",
        "/collective_rpc",
    } < routes
    assert len(routes) > 40
    reached = await served(with_door(vllms_app))
    assert reached == {
        "GET /health",
        "GET /v1/models",
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "POST /v1/embeddings",
        "POST /v1/responses",
    }
    assert reached | {"GET /v1/models/*"} == set(ALWAYS)


async def test_no_websocket_of_vllms_is_among_them(vllms_app: Any) -> None:
    sockets = [r.path for r in vllms_app.routes if isinstance(r, WebSocketRoute)]
    assert sockets
    assert not [path for path in sockets if f"GET {path}" in ALWAYS]


async def test_of_rays_routes_those_that_clients_need_are_reached(rays_app: Any) -> None:
    assert {"/tokenize", "/detokenize", "/docs"} < {path for _, path in asked(rays_app)}
    assert await served(rays_app) == {
        "GET /v1/models",
        "GET /v1/models/model",
        "POST /v1/chat/completions",
        "POST /v1/completions",
        "POST /v1/embeddings",
    }


async def test_rays_ingress_goes_by_a_changed_block_and_keeps_the_old_one_over_an_error(
    rays_app: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(logger, "error", lambda text, *args: said.append(text % args))
    middleware = next(m for m in rays_app.user_middleware if m.cls is DoorMiddleware)
    door = middleware.kwargs["door"]
    ingress = AdmissionIngress({}, {}, security={"extra_paths": ["/tokenize"]})
    ingress._door = door
    ingress.reconfigure(None)
    assert "POST /tokenize" in await served(rays_app)
    ingress.reconfigure({"security": {"extra_paths": ["POST /detokenize"]}})
    ingress.reconfigure({"security": {"extra_paths": ["detokenize"]}})
    reached = await served(rays_app)
    assert "POST /detokenize" in reached
    assert "POST /tokenize" not in reached
    assert [line.count("what held before holds on: user_config.security") for line in said] == [1]
