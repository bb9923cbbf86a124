"""Pages of other origins: none may ask, unless its origin is named."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from controller.errors import ConfigError
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security

PATH, OURS, ALLOW = "/v1/completions", "https://chat.example.com", "access-control-allow-origin"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


async def _answer(request: Request) -> Response:
    return PlainTextResponse(request.headers.get("origin", "hidden"))


def client_of(*origins: str) -> httpx.AsyncClient:
    app = Starlette(routes=[Route(PATH, _answer, methods=["POST"])])
    app.add_middleware(CORSMiddleware, allow_origins=["*"])  # as vLLM and Ray have it
    app.add_middleware(
        DoorMiddleware, door=Door(Rules(parse_security({"cors_origins": list(origins)})))
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://r")


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ((), OURS, None),
        ((OURS,), OURS, OURS),
        ((OURS, "http://localhost:3000"), "http://localhost:3000", "http://localhost:3000"),
        ((OURS,), "https://evil.example.com", None),
        (("*",), "https://any.example.com", "*"),
    ],
)
async def test_a_page_may_read_answers_where_its_origin_is_named(
    origins: tuple[str, ...], origin: str, allowed: str | None
) -> None:
    async with client_of(*origins) as client:
        answer = await client.post(PATH, json={}, headers={"origin": origin})
        refused = await client.post("/nowhere", json={}, headers={"origin": origin})
        asked = await client.options(PATH, headers={"origin": origin, **ASKS})
    assert (answer.text, answer.headers.get(ALLOW)) == ("hidden", allowed)
    if allowed:  # a browser hides headers that are not named, Retry-After too
        assert refused.headers["access-control-expose-headers"] == "*"
    assert (refused.status_code, refused.headers.get(ALLOW)) == (404, allowed)
    assert (asked.status_code == 200, asked.headers.get(ALLOW)) == (allowed is not None, allowed)


@pytest.mark.parametrize("wrong", ["chat.example.com", f"{OURS}/", "https://A.example.com", "null"])
def test_what_no_browser_sends_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"args.security.cors_origins: .*an origin as browsers"):
        parse_security({"cors_origins": [wrong]}, "args.security")
