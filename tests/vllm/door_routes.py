"""Every route of the two real apps, and what the door answers without a key and with one.

``python -m tests.vllm.door_routes`` prints the table of docs/security.md.
"""

import argparse
import asyncio
import os
import sys
import tempfile
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
from serve_app.demo.tiny_model import make_tiny_model
from serve_app.ingress import AdmissionIngress

TASKS = ("generate", "embed", "classify", "score", "transcription", "realtime", "render")
DEVELOPERS = {"VLLM_SERVER_DEV_MODE": "1"}
RIGHT, WRONG = "sk-right-0123456789", "sk-wrong-0123456789"
HEADER = "| route | no key | a wrong key | a right key |\n|---|---|---|---|"


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


async def answers(app: Any, key: str | None = None) -> dict[str, str]:
    """What each route answers: the door's status, or that the app behind it was reached."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    found = {}
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as client:
        for method, path in routes(app):
            body = {} if method == "POST" else None
            answer = await client.request(method, path, json=body, headers=headers)
            refused = "x-brimful-reason" in answer.headers
            found[f"{method} {path}"] = str(answer.status_code) if refused else "served"
    return found


async def table(model: Path) -> str:
    """In Markdown; the routes that are served first."""
    with tempfile.NamedTemporaryFile("w") as keys:
        print("right", RIGHT, file=keys, flush=True)
        security = {"keys": {"file": keys.name}}
        found: dict[str, list[str]] = {}
        for app in (with_door(vllms_app(model), security), await rays_app(security)):
            columns = [await answers(app, key) for key in (None, WRONG, RIGHT)]
            found |= {route: [column[route] for column in columns] for route in columns[0]}
    rows = sorted(found.items(), key=lambda row: (row[1][2] != "served", row[0].split()[::-1]))
    lines = [f"| `{route}` | {' | '.join(told)} |" for route, told in rows]
    return "\n".join([HEADER, *lines])


if __name__ == "__main__":
    text = asyncio.run(table(make_tiny_model(Path(".cache") / "tiny-llama")))
    sys.stdout.write(f"{text}\n")
