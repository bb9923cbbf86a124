"""Every route of the two real apps, and which of them the door lets through."""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from ray.llm._internal.serve.core.ingress.ingress import make_fastapi_ingress
from ray.llm._internal.serve.core.server.llm_server import _add_middleware_to_built_app
from starlette.routing import Mount, Route, WebSocketRoute
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import FrontendArgs

from replicas.door.auth import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security
from serve_app.ingress import AdmissionIngress

TASKS = ("generate", "embed", "classify", "score", "transcription", "realtime", "render")
DEVELOPERS = {"VLLM_SERVER_DEV_MODE": "1"}


def vllms_app(model: Path) -> Any:
    """Every route that vLLM has, those for its developers too; no engine is behind it."""
    args = AsyncEngineArgs(model=str(model))
    space = argparse.Namespace(**(vars(FrontendArgs()) | vars(args)))
    with patch.dict(os.environ, DEVELOPERS):
        return build_app(space, TASKS, args.create_model_config())


async def rays_app(security: dict[str, Any] | None = None) -> Any:
    """That of an ingress replica, behind its door, as Ray Serve makes it there."""
    return await (await rays_ingress(security)).__serve_build_asgi_app__()


async def rays_ingress(
    security: dict[str, Any] | None = None, cards: Any = None, **more: Any
) -> Any:
    """What an ingress replica holds, as Ray Serve makes it there; no model is behind it."""
    wrapped = make_fastapi_ingress(AdmissionIngress)
    wrapped.__del__ = lambda self: None  # Ray's is a coroutine, which its replica awaits
    with patch("ray.serve.api.ServeUsageTag"):  # it would tell a cluster that there is an app
        ingress = wrapped.__new__(wrapped)
        await ingress.__init__(dict.fromkeys(cards or {}), cards or {}, security=security, **more)
    return ingress


def with_door(app: Any, security: dict[str, Any]) -> Any:
    """The app as a replica puts its door before it."""
    _add_middleware_to_built_app(app, DoorMiddleware, door=Door(Rules(parse_security(security))))
    return app


def routes(app: Any) -> Iterator[tuple[str, str]]:
    """A method and a path for each of the app's routes but websockets."""
    for route in app.routes:
        if isinstance(route, Mount):
            yield "GET", f"{route.path}/"
        elif isinstance(route, Route):
            path = route.path.replace("{", "").replace("}", "").replace(":path", "")
            yield from ((method, path) for method in sorted(route.methods or ()))


def websockets(app: Any) -> list[str]:
    """Their paths."""
    return [route.path for route in app.routes if isinstance(route, WebSocketRoute)]


async def reached(app: Any) -> set[str]:
    """The routes whose requests get past the door."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    found = set()
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as client:
        for method, path in routes(app):
            answer = await client.request(method, path, json={} if method == "POST" else None)
            if "x-brimful-reason" not in answer.headers:
                found.add(f"{method} {path}")
    return found
