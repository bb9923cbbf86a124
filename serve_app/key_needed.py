"""If keys are configured, console and batches answer only requests that show one."""

import base64
import binascii
from collections.abc import Collection

from starlette._utils import get_route_path
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from replicas.admission.answers import error_body
from replicas.door.key_source import KeySource

MESSAGE = "an API key is needed: Authorization: Bearer KEY"


class KeyNeeded:
    """ASGI middleware: answers 401 to requests without a key.

    Args:
        to_browsers: a browser asks its user, and shows the key as the password (Basic).
        open_paths: answered without a key.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: KeySource,
        *,
        to_browsers: bool = False,
        open_paths: Collection[str] = (),
    ) -> None:
        self._app, self._keys = app, keys
        self._to_browsers, self._open_paths = to_browsers, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or get_route_path(scope) in self._open_paths
        if is_open or self._may(Request(scope)):
            await self._app(scope, receive, send)
            return
        asked = 'Basic realm="Brimful", charset="UTF-8"' if self._to_browsers else "Bearer"
        told = error_body(401, MESSAGE, "authorization")
        await JSONResponse(told, 401, {"WWW-Authenticate": asked})(scope, receive, send)

    def _may(self, request: Request) -> bool:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        key = shown.strip().encode()
        if self._to_browsers and scheme.lower() == "basic":
            try:
                key = base64.b64decode(key, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != "bearer":
            return False
        return self._keys.ring().find(key) is not None
