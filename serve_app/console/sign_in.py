"""Who may see the console, where keys are configured: whoever shows one.

A program shows it as to any other route, ``Authorization: Bearer KEY``. A browser signs in once and
then shows a cookie, which holds a random number and never the key.
"""

import html
import time
from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe
from urllib.parse import parse_qs

from starlette._utils import get_route_path
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from replicas.door.key_source import KeySource
from serve_app.console.page import SignInPage

COOKIE = "brimful_console"
SESSION_S = 12 * 3600.0
MOST_SESSIONS = 1000  # at once; the oldest ends for one more
MOST_FORM_BYTES = 4096
PATH, API = "/sign-in", "/api/"
UNKNOWN = "This key is not known here."


class Sessions:
    """Who has signed in; gone with the process.

    Args:
        clock: seconds, that only grow.
    """

    def __init__(self, keys: KeySource, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys, self._clock = keys, clock
        self._known: dict[bytes, tuple[bytes, float]] = {}  # digests of number and key, its end

    def knows(self, key: str) -> bool:
        """Whether this key is good now."""
        return self._keys.ring().find(key.encode()) is not None

    def begin(self, key: str) -> str | None:
        """The number for the cookie of who shows this key; None where it is not known."""
        found = self._keys.ring().find(key.encode())
        if found is None:
            return None
        now_s = self._clock()
        self._known = {n: one for n, one in self._known.items() if one[1] > now_s}
        while len(self._known) >= MOST_SESSIONS:
            del self._known[next(iter(self._known))]
        number = token_urlsafe(32)
        self._known[_digest(number)] = found.digest, now_s + SESSION_S
        return number

    def holds(self, number: str) -> bool:
        """Whether it was given out, is not too old, and its key is still good."""
        key, until_s = self._known.get(_digest(number), (b"", 0.0))
        return self._clock() < until_s and self._keys.ring().holds(key)


def _digest(number: str) -> bytes:
    return sha256(number.encode()).digest()


class SignIn:
    """ASGI middleware: a page to sign in for browsers, a 401 for programs."""

    def __init__(self, app: ASGIApp, sessions: Sessions, page: SignInPage) -> None:
        self._app, self._sessions, self._page = app, sessions, page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        path = get_route_path(scope)
        if path == PATH and request.method == "POST":
            try:
                answer = await self._signed_in(request)
            except ClientDisconnect:
                return
        elif self._may(request):
            if path != PATH:
                await self._app(scope, receive, send)
                return
            answer = RedirectResponse(_home(request), 303)
        elif path.startswith(API):
            said = "an API key is needed: `Authorization: Bearer KEY`, or sign in"
            answer = JSONResponse({"error": said}, 401)
        else:
            answer = self._form(request, "")
        if answer.status_code == 401:
            answer.headers["www-authenticate"] = "Bearer"
        await answer(scope, receive, send)

    def _may(self, request: Request) -> bool:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._sessions.knows(key.strip()):
            return True
        return self._sessions.holds(request.cookies.get(COOKIE, ""))

    async def _signed_in(self, request: Request) -> Response:
        key = await _key(request)
        number = self._sessions.begin(key) if key else None
        if number is None:
            return self._form(request, UNKNOWN)
        answer = RedirectResponse(_home(request), 303)
        outside = request.headers.get("x-forwarded-proto", request.url.scheme)
        answer.set_cookie(
            COOKIE,
            number,
            path=_root(request) or "/",
            httponly=True,
            samesite="strict",
            secure=outside == "https",
        )
        return answer

    def _form(self, request: Request, said: str) -> Response:
        place = html.escape(f"{_root(request)}{PATH}")
        text = self._page.html.replace("{place}", place).replace("{said}", html.escape(said))
        headers = {"content-security-policy": self._page.policy}
        return Response(text, 401, headers, media_type="text/html")


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _home(request: Request) -> str:
    return f"{_root(request)}/"


async def _key(request: Request) -> str:
    """The key in a form; empty where there is none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            return ""
    return parse_qs(body.decode("latin-1")).get("key", [""])[0].strip()
