"""The auth middleware's checks of a request, before its body is read."""

import random
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, MutableMapping
from typing import Any

from starlette._utils import get_route_path  # as in the app's router

from replicas.admission.answers import JITTER, LEAST_RETRY_S, Answer, RefusedError
from replicas.admission.asked import KEYS_CLASSES, NO_FAILOVER
from replicas.door.key_source import KeySource
from replicas.door.keys import Key
from replicas.door.paths import HEALTH, PING, VLLMS_ALONE, Paths, opener
from replicas.door.settings import Security

# Headers that the app must not see: those of a browser that shows another site's page, as vLLM's
# and Ray Serve LLM's CORS middlewares allow all origins, and headers that only Brimful may send
# to a replica. ASGI's header names are lower-case.
HIDDEN = (b"origin", b"access-control-", b"x-brimful-")
AUTHORIZATION = b"authorization"
X_API_KEY = b"x-api-key"  # where most Anthropic clients send their key
HIDDEN_WITH_KEY = (*HIDDEN, AUTHORIZATION, X_API_KEY)
SCHEME = b"bearer"
LET_IN = "let_in"
NOBODY = "none"  # instead of a key's name

Scope = MutableMapping[str, Any]
Count = Callable[[str, str], None]
"""Called for each request with the name of its key, and ``LET_IN`` or the reason of a refusal."""


class Rules:
    """A parsed ``security`` block with its keys.

    Raises:
        ConfigError: its keys cannot be read.
    """

    def __init__(self, security: Security, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = security.limits
        self.paths = Paths(security.extra_paths)
        self.cors_origins = security.cors_origins
        self.keys = KeySource(security.keys, clock) if security.keys else None


class Door:
    """The auth checks of one process.

    Args:
        count: called for each request.

    Attributes:
        rules: the present ones; may be changed while requests are inside.
        served: paths of the app; None: those of vLLM's.
    """

    served: Container[str] | None = None

    def __init__(self, rules: Rules, count: Count = lambda key, outcome: None) -> None:
        self.rules = rules
        self.count = count
        self._inside: Counter[str] = Counter()  # requests, by the name of their key

    def enter(self, scope: Scope) -> Key | None:
        """Admit an ASGI request or websocket; removes headers that the app must not see.

        Returns:
            Its key, for ``leave``; None if none is needed.

        Raises:
            RefusedError: ``answer`` says why.
        """
        path = get_route_path(scope)
        self._check_path(path, scope.get("method", "GET"))
        rules = self.rules
        if rules.keys is None:
            scope["headers"] = _without(HIDDEN, scope["headers"])
            return None
        key = None if path in (HEALTH, PING) else self._key(scope, rules.keys)
        headers = _without(HIDDEN_WITH_KEY, scope["headers"])
        if key is not None and key.classes:
            headers.append((KEYS_CLASSES.encode(), ",".join(key.classes).encode()))
        scope["headers"] = headers
        if key is not None:
            self._take_place(key)
        return key

    def leave(self, key: Key | None) -> None:
        """A request that was admitted is over."""
        if key is not None:
            self._inside[key.name] -= 1
            if not self._inside[key.name]:
                del self._inside[key.name]

    def _check_path(self, path: str, method: str) -> None:
        methods = self.rules.paths.methods(path)
        whole = path.rstrip("/")
        known = self.served is None or whole in self.served
        elsewhere = not known and whole in VLLMS_ALONE
        if not methods or elsewhere:
            said = f"nothing is served at this path: {path[:200]!r}"
            if elsewhere:
                said += "; Ray Serve LLM's ingress has no such route, direct streaming has it"
            elif known and (entry := opener(path)):
                said += f"; `security: {{extra_paths: [{entry}]}}` of this server opens it"
            answer = Answer(404, "no_such_path", said, param="path")
            raise self._refused(answer)
        if method not in methods:
            allowed = ", ".join(sorted(methods))
            said = f"this path is served by {allowed}, not by {method[:20]!r}"
            more = (("allow", allowed),)
            raise self._refused(Answer(405, "no_such_method", said, param="method", more=more))

    def _key(self, scope: Scope, keys: KeySource) -> Key:
        token = _shown(scope["headers"])
        if not token:
            said = (
                "no API key was given: send one as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            )
            raise self._refused(_unauthorized("no_key", said, "Bearer"))
        key = keys.ring().find(token)
        if key is None:
            said = "this API key is not known here"
            challenge = 'Bearer error="invalid_token"'
            raise self._refused(_unauthorized("wrong_key", said, challenge))
        return key

    def _take_place(self, key: Key) -> None:
        most = key.max_in_flight
        if most is not None and self._inside[key.name] >= most:
            said = (
                f"{most} requests with the API key {key.name!r} are being served, as many as"
                " its max_in_flight allows"
            )
            retry_s = LEAST_RETRY_S * (1 + JITTER * random.random())
            raise self._refused(Answer(429, "key_busy", said, retry_s=retry_s), key.name)
        self._inside[key.name] += 1

    def _refused(self, answer: Answer, key: str = NOBODY) -> RefusedError:
        self.count(key, answer.reason)
        return RefusedError(answer)


def _without(
    hidden: tuple[bytes, ...], headers: Iterable[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    return [h for h in headers if not h[0].startswith(hidden) or h[0] == NO_FAILOVER[0]]


def _shown(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The key that a request shows; empty: none, or several."""
    shown = [(name, value) for name, value in headers if name in (AUTHORIZATION, X_API_KEY)]
    bearers = [value for name, value in shown if name == AUTHORIZATION]
    if not bearers:
        return shown[0][1].strip() if len(shown) == 1 else b""
    scheme, _, token = (bearers[0] if len(bearers) == 1 else b"").partition(b" ")
    return token.strip() if scheme.lower() == SCHEME else b""


def _unauthorized(reason: Any, said: str, challenge: str) -> Answer:
    more = (("www-authenticate", challenge),)
    return Answer(401, reason, said, param="authorization", more=more)
