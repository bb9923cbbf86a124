"""Who and what an application lets in, before anything of a request's body is read."""

import random
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, MutableMapping
from typing import Any

from starlette._utils import get_route_path  # by which the app's router matches, too

from replicas.admission.answers import JITTER, LEAST_RETRY_S, Answer, RefusedError
from replicas.admission.asked import KEYS_CLASSES
from replicas.door.key_source import KeySource
from replicas.door.keys import Key
from replicas.door.paths import HEALTH, PING, VLLMS_ALONE, Paths, opener
from replicas.door.settings import Security

# Of a browser that shows another site's page: without it the app's CORS middleware, which allows
# all origins in vLLM and in Ray Serve LLM, does nothing. And what only we may say to a replica.
# ASGI's names of headers are in lower case.
HIDDEN = (b"origin", b"access-control-", b"x-brimful-")
AUTHORIZATION = b"authorization"
X_API_KEY = b"x-api-key"  # in which most of Anthropic's clients send their key
HIDDEN_WITH_KEY = (*HIDDEN, AUTHORIZATION, X_API_KEY)
SCHEME = b"bearer"
LET_IN = "let_in"
NOBODY = "none"  # in place of a key's name

Scope = MutableMapping[str, Any]
Count = Callable[[str, str], None]
"""What is told of each request: the name of its key, and ``LET_IN`` or why it was refused."""


class Rules:
    """A ``security`` block, ready to go by.

    Raises:
        ConfigError: the keys that it names cannot be read.
    """

    def __init__(self, security: Security, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = security.limits
        self.paths = Paths(security.extra_paths)
        self.cors_origins = security.cors_origins
        self.keys = KeySource(security.keys, clock) if security.keys else None


class Door:
    """One process's door.

    Args:
        count: is told of each request.

    Attributes:
        rules: what it goes by; may be changed while requests are inside.
        served: paths of the app behind it; None: those that vLLM's has.
    """

    served: Container[str] | None = None

    def __init__(self, rules: Rules, count: Count = lambda key, outcome: None) -> None:
        self.rules = rules
        self.count = count
        self._inside: Counter[str] = Counter()  # requests, by the name of their key

    def enter(self, scope: Scope) -> Key | None:
        """Let an ASGI request or websocket in; its headers are then those that the app may see.

        Returns:
            Its key, for ``leave``; None if none was asked for.

        Raises:
            RefusedError: it may not come in; ``answer`` says why.
        """
        path = get_route_path(scope)
        self._check_path(path, scope.get("method", "GET"))
        rules = self.rules
        if rules.keys is None:
            scope["headers"] = [h for h in scope["headers"] if not h[0].startswith(HIDDEN)]
            return None
        key = None if path in (HEALTH, PING) else self._key(scope, rules.keys)
        headers = [h for h in scope["headers"] if not h[0].startswith(HIDDEN_WITH_KEY)]
        if key is not None and key.classes:
            headers.append((KEYS_CLASSES.encode(), ",".join(key.classes).encode()))
        scope["headers"] = headers
        if key is not None:
            self._take_place(key)
        return key

    def leave(self, key: Key | None) -> None:
        """A request that was let in is over."""
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
            said = f"{most} requests with the API key {key.name!r} are being served; more may not"
            retry_s = LEAST_RETRY_S * (1 + JITTER * random.random())
            raise self._refused(Answer(429, "key_busy", said, retry_s=retry_s), key.name)
        self._inside[key.name] += 1

    def _refused(self, answer: Answer, key: str = NOBODY) -> RefusedError:
        self.count(key, answer.reason)
        return RefusedError(answer)


def _shown(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The key that a request shows; empty: none, or none that is clear."""
    shown = [(name, value) for name, value in headers if name in (AUTHORIZATION, X_API_KEY)]
    bearers = [value for name, value in shown if name == AUTHORIZATION]
    if not bearers:
        return shown[0][1].strip() if len(shown) == 1 else b""
    scheme, _, token = (bearers[0] if len(bearers) == 1 else b"").partition(b" ")
    return token.strip() if scheme.lower() == SCHEME else b""


def _unauthorized(reason: Any, said: str, challenge: str) -> Answer:
    more = (("www-authenticate", challenge),)
    return Answer(401, reason, said, param="authorization", more=more)
