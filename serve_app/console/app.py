"""The console over HTTP: one page, and the JSON behind it. Read-only: it answers only GET.

The page is one answer, wherever the application is mounted, and it runs nothing else: each part of
it is named by its digest in the page's policy.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controller.errors import BrimfulError
from replicas.door.key_source import KeySource
from serve_app.console.view import Deployment, View
from serve_app.console.watch import Watch
from serve_app.key_needed import KeyNeeded

JSON = "application/json"
LONGEST_NAME = 1000  # characters of a group or replica; no group or replica has a longer one

AskTimeline = Callable[[Deployment, str], Awaitable[dict[str, Any]]]
"""A replica of a deployment, asked for its last minute; a BrimfulError: it does not answer."""
STYLES = ("uPlot.min.css", "console.css")
# In the order in which they run.
SCRIPTS = ("uPlot.iife.min.js", "draw.js", "timeline.js", "console.js")


class Headers:
    """Headers: browsers may not cache, frame or sniff the console, or load from elsewhere."""

    def __init__(self, app: ASGIApp, policy: str) -> None:
        self._app = app
        self._headers = [
            (b"content-security-policy", policy.encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                ours = [pair for pair in self._headers if pair[0] not in own]
                message = {**message, "headers": [*message["headers"], *ours]}
            await send(message)

        # Without a slash at the end of the address, Ray Serve leaves no path at all.
        if scope["type"] == "http" and scope["path"] == scope.get("root_path"):
            scope = {**scope, "path": f"{scope['path']}/"}
        await self._app(scope, receive, with_headers)


def console_app(
    watch: Watch, keys: KeySource | None = None, ask_timeline: AskTimeline | None = None
) -> Starlette:
    """The application; it reads the fleet's state from its start to its end.

    Args:
        keys: one of these is needed; None: no key is needed.
        ask_timeline: asks a replica for its timeline; None: no timelines.
    """
    page = Page.shipped()
    middleware = [Middleware(Headers, policy=page.policy)]
    if keys is not None:
        middleware.append(Middleware(KeyNeeded, keys=keys, to_browsers=True))

    @contextlib.asynccontextmanager
    async def watching(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(watch.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def index(_: Request) -> Response:
        return Response(page.html, media_type="text/html")

    async def fleet(_: Request) -> Response:
        return Response(watch.fleet, media_type=JSON)

    async def series(request: Request) -> Response:
        status, known = series_of(watch.view, request.query_params)
        return Response(json.dumps(known, allow_nan=False), status, media_type=JSON)

    async def timeline(request: Request) -> Response:
        status, known = await timeline_of(watch, ask_timeline, request.query_params)
        return Response(json.dumps(known, allow_nan=False), status, media_type=JSON)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/api/fleet", fleet),
            Route("/api/series", series),
            Route("/api/timeline", timeline),
        ],
        middleware=middleware,
        lifespan=watching,
    )


def series_of(view: View, query: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """Status and JSON of ``?group=...``, or of one replica with ``&replica=...``.

    ``&after=``: points after this Unix time, seconds; all points if it is missing.
    """
    group, replica = (query.get(name, "") for name in ("group", "replica"))
    after_unix_s = _number(query.get("after", "0"))
    if not group or len(group) > LONGEST_NAME or len(replica) > LONGEST_NAME:
        return 400, {"error": "group: is missing, or group or replica is too long"}
    if after_unix_s is None:
        return 400, {"error": "after: must be a Unix time, seconds"}
    if replica:
        known = view.replica(group, replica, after_unix_s)
    else:
        known = view.model(group, after_unix_s)
    return (
        (404, {"error": "no replica or group has this name now"}) if known is None else (200, known)
    )


async def timeline_of(
    watch: Watch, ask: AskTimeline | None, query: Mapping[str, str]
) -> tuple[int, dict[str, Any]]:
    """Status and JSON of ``?replica=...``."""
    where = watch.deployment_of(query.get("replica", ""))
    if ask is None or where is None:
        return 404, {"error": "no replica or group has this name now"}
    try:
        return 200, await ask(where, query["replica"])
    except BrimfulError as error:
        return 503, {"error": str(error)}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Page:
    """Args:
    policy: the Content-Security-Policy that goes with it.
    """

    html: str
    policy: str

    @classmethod
    def shipped(cls) -> "Page":
        """The page of this package."""
        styles, scripts = [_read(name) for name in STYLES], [_read(name) for name in SCRIPTS]
        html = _read("index.html")
        html = html.replace(*_placed("style", styles)).replace(*_placed("script", scripts))
        more = ("connect-src 'self'", f"script-src {_digests(scripts)}", "form-action 'none'")
        return cls(html, _policy(styles, *more))


def _read(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _policy(styles: list[str], *more: str) -> str:
    known = ["default-src 'none'", "img-src data:", f"style-src {_digests(styles)}"]
    return "; ".join([*known, *more, "base-uri 'none'", "frame-ancestors 'none'"])


def _placed(kind: str, texts: list[str]) -> tuple[str, str]:
    """The places of these parts, and what goes there."""
    return f"<!-- {kind}s -->", "\n".join(f"<{kind}>{text}</{kind}>" for text in texts)


def _digests(texts: list[str]) -> str:
    hashes = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
