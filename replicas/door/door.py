"""Who and what an application lets in, before anything of it is read."""

from collections.abc import MutableMapping
from typing import Any

from starlette._utils import get_route_path  # by which the app's router matches, too

from replicas.admission.answers import Answer, RefusedError
from replicas.door.paths import Paths
from replicas.door.settings import Security

# Of a browser that shows another site's page: without it the app's CORS middleware, which allows
# all origins in vLLM and in Ray Serve LLM, does nothing. And what only we may say to a replica.
CLIENTS_MAY_NOT_SEND = (b"origin", b"access-control-")
OURS = b"x-brimful-"


class Door:
    """One process's door; what it goes by may change while requests are inside."""

    def __init__(self, security: Security) -> None:
        self.configure(security)

    def configure(self, security: Security) -> None:
        """Go by this from now on."""
        self._paths = Paths(security.extra_paths)

    def enter(self, scope: MutableMapping[str, Any]) -> None:
        """Let an ASGI request or websocket in; its headers are then those that the app may see.

        Raises:
            RefusedError: it may not come in; ``answer`` says why.
        """
        path = get_route_path(scope)
        self._check_path(path, scope.get("method", "GET"))
        scope["headers"] = [pair for pair in scope["headers"] if not _hidden(pair[0])]

    def _check_path(self, path: str, method: str) -> None:
        methods = self._paths.methods(path)
        if not methods:
            said = "nothing is served at this path"
            raise RefusedError(Answer(404, "no_such_path", f"{said}: {path[:200]!r}", param="path"))
        if method not in methods:
            allowed = ", ".join(sorted(methods))
            said = f"this path is served by {allowed}, not by {method[:20]!r}"
            more = (("allow", allowed),)
            raise RefusedError(Answer(405, "no_such_method", said, param="method", more=more))


def _hidden(name: bytes) -> bool:
    lower = name.lower()
    return lower.startswith(CLIENTS_MAY_NOT_SEND) or lower.startswith(OURS)
