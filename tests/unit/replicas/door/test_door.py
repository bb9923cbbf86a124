"""Who comes through the door to an app behind it, what of a request does, and what is answered."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from controller.errors import ConfigError
from replicas.admission.asgi import FIELDS
from replicas.door.auth import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.paths import ALWAYS, METHODS, Paths
from replicas.door.settings import parse_security

PATH, MESSAGES = "/v1/completions", "/v1/messages"
ALICE, BOB = "sk-alice-0123456789", "sk-bob-0123456789=="
KEYS = f"alice {ALICE}\nbob {BOB} classes=batch,standard max_in_flight=1\n"


class Behind:
    """A door, and an app that shows what reached it and waits while it is told to.

    It answers every path by every method, and allows every origin, as vLLM's and Ray's do.
    """

    def __init__(self, prefix: str = "", **block: Any) -> None:
        self.counted: list[tuple[str, str]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.inside = 0
        self.door = Door(Rules(parse_security(block), lambda: 0.0), self._count)
        every = Route("/{path:path}", self._answer, methods=[*METHODS, "OPTIONS"])
        cors = Middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"])
        routes = [WebSocketRoute("/v1/realtime", self._talk), every]
        app = Starlette(routes=routes, middleware=[cors])
        app.add_middleware(DoorMiddleware, door=self.door)
        self.app = Starlette(routes=[Mount(prefix, app)]) if prefix else app
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://r")

    def _count(self, key: str, outcome: str) -> None:
        self.counted.append((key, outcome))

    async def _answer(self, request: Request) -> Response:
        self.inside += 1
        await self.go_on.wait()
        body, known = await request.body(), request.scope.get(FIELDS)
        return JSONResponse(
            {
                "path": request.url.path,
                "headers": dict(request.headers),
                "body": body.decode("latin-1"),
                "fields": known,
            }
        )

    async def _talk(self, socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self.client.request(method, path, **more)

    async def get(self, headers: Any = (), path: str = "/v1/models") -> httpx.Response:
        return await self.ask("GET", path, headers=[*dict(headers).items()])


# Paths and methods.


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/health", {"GET"}),
        ("/ping", {"GET", "POST"}),
        ("/v1/models", {"GET"}),
        ("/v1/models/meta-llama/Llama-3", {"GET"}),
        ("/v1/chat/completions", {"POST"}),
        ("/v1/completions", {"POST"}),
        ("/v1/completions/", {"POST"}),  # which the app redirects
        ("/v1/embeddings", {"POST"}),
        ("/v1/responses", {"POST"}),
        *((path, set()) for path in ("/v1/responses/resp_1", "/v1/chat/completions/render")),
        *((path, set()) for path in ("/v1/modelsx", "/V1/completions", "/tokenize/", "/a%00b")),
        *((path, set()) for path in ("/", "/invocations", "/tokenize", "/scale_elastic_ep")),
        *((path, set()) for path in ("/docs", "/metrics", "/version", "/load")),
    ],
)
async def test_what_a_client_of_openais_api_needs_is_served_and_nothing_else(path, methods) -> None:
    behind = Behind()
    for method in METHODS:
        answer = await behind.ask(method, path)
        status = 200 if method in methods else 405 if methods else 404
        assert answer.status_code == status
        if status != 200 and method != "HEAD":
            error = answer.json()["error"]
            kind = "invalid_request_error" if methods else "not_found_error"
            assert (error["code"], error["type"]) == (status, kind)
        if status == 405:
            assert answer.headers["allow"] == ", ".join(sorted(methods))


def test_more_is_served_where_it_was_asked_for() -> None:
    paths = Paths(["/tokenize", "GET /metrics", "POST /v1/audio/*", "DELETE /v1/models"])
    assert paths.methods("/tokenize") == set(METHODS)
    assert paths.methods("/tokenize/x") == paths.methods("//v1/completions") == set()
    assert paths.methods("/metrics") == {"GET"}
    assert paths.methods("/v1/audio/transcriptions") == {"POST"}
    assert paths.methods("/v1/audio") == paths.methods("") == set()
    assert paths.methods("/v1/models") == {"GET", "DELETE"}
    assert Paths(["/*"]).methods("/anything") == set(METHODS)


@pytest.mark.parametrize(
    "wrong", ["", "tokenize", "post /tokenize", "POST  /x", "FETCH /x", "/a*", "/*/a", "/a b", "/ä"]
)
def test_what_is_no_path_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_security({"extra_paths": ["/tokenize", wrong]}, "args.security")
    (line,) = refused.value.problems
    assert line.startswith("args.security.extra_paths: ['/tokenize', ")
    assert f"is not allowed: {wrong!r}: a path ('/tokenize'), with a method" in line


async def test_an_application_with_a_prefix_is_judged_by_the_rest_of_its_paths() -> None:
    behind = Behind("/qwen")
    assert (await behind.get(path="/qwen/v1/models")).status_code == 200
    assert (await behind.get(path="/qwen/version")).status_code == 404


# Keys.


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(KEYS)
    return file


@pytest.fixture
def behind(keys: Path) -> Any:
    made = Behind(keys={"file": str(keys)}, extra_paths=["/v1/realtime", f"POST {MESSAGES}"])
    yield made
    assert not made.door._inside


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_who_has_a_key_comes_in_and_the_key_goes_no_further(behind: Behind) -> None:
    forged = {"X-Brimful-Classes": "gold"}  # only the auth middleware sets it
    own = {"X-Brimful-Failover": "off"}  # the client's own
    seen = (await behind.get(bearer(ALICE) | forged | own)).json()["headers"]
    assert not {"authorization", "x-brimful-classes"} & seen.keys()
    assert seen["x-brimful-failover"] == "off"
    assert behind.counted == [("alice", "let_in")]
    lower = await behind.get({"AUTHORIZATION": f"bearer {BOB}"} | forged)
    assert lower.json()["headers"]["x-brimful-classes"] == "batch,standard"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([], "no_key"),
        ([("authorization", "")], "no_key"),
        ([("authorization", "Bearer")], "no_key"),
        ([("authorization", "Bearer ")], "no_key"),
        ([("authorization", ALICE)], "no_key"),
        ([("authorization", f"Basic {ALICE}")], "no_key"),
        ([("authorization", f"Bearer {ALICE}"), ("authorization", f"Bearer {BOB}")], "no_key"),
        ([("x-api-key", "")], "no_key"),
        ([("x-api-key", BOB), ("x-api-key", ALICE)], "no_key"),
        # A header without a key counts before another with one.
        ([("x-api-key", BOB), ("authorization", "")], "no_key"),
        ([("x-api-key", BOB), ("authorization", "Basic YTpi")], "no_key"),
        ([("authorization", f"Bearer {ALICE}x")], "wrong_key"),
        ([("authorization", f"Bearer {ALICE} {BOB}")], "wrong_key"),
        ([("authorization", b"Bearer \xff\xfe")], "wrong_key"),
        ([("authorization", "Bearer -")], "wrong_key"),
        ([("x-api-key", f"{BOB}x")], "wrong_key"),
    ],
    ids=repr,
)
async def test_who_has_none_is_told_so_as_openai_does(behind, headers, reason) -> None:
    answer = await behind.ask("GET", "/v1/models", headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (401, "authentication_error", 401)
    challenge = "Bearer" if reason == "no_key" else 'Bearer error="invalid_token"'
    assert answer.headers["www-authenticate"] == challenge
    assert answer.headers["x-brimful-reason"] == reason
    assert ("`x-api-key: KEY`" in answer.text) == (reason == "no_key")
    assert ALICE not in answer.text
    assert (behind.counted, behind.inside) == ([("none", reason)], 0)


async def test_anthropics_clients_send_theirs_in_a_header_of_its_own(behind: Behind) -> None:
    for key in (BOB, f"{BOB} "):
        served = await behind.ask("POST", MESSAGES, headers={"X-Api-Key": key})
        assert served.json()["headers"]["x-brimful-classes"] == "batch,standard"
        assert "x-api-key" not in served.json()["headers"]
    # If both are there, the one that all other clients send counts.
    await behind.get({"x-api-key": BOB} | bearer(ALICE))
    assert behind.counted == [("bob", "let_in")] * 2 + [("alice", "let_in")]


async def test_health_needs_no_key_and_a_path_that_is_not_served_has_none(behind: Behind) -> None:
    assert (await behind.get(path="/health")).status_code == 200
    assert (await behind.get(path="/tokenize")).status_code == 404
    assert (await behind.get(bearer(ALICE), "/tokenize")).status_code == 404


@pytest.mark.parametrize("path", [line.partition(" ")[2] for line in ALWAYS if "POST /v1" in line])
async def test_the_classes_of_a_key_go_along_on_every_way_in(behind: Behind, path: str) -> None:
    answer = await behind.ask("POST", path, headers=bearer(BOB), json={})
    assert answer.json()["headers"]["x-brimful-classes"] == "batch,standard"


async def test_a_key_has_so_many_requests_at_once(behind: Behind) -> None:
    behind.go_on.clear()
    first = asyncio.create_task(behind.ask("POST", PATH, headers=bearer(BOB)))
    while not behind.inside:  # noqa: ASYNC110 - the test's own time limit ends it
        await asyncio.sleep(0)
    busy = await behind.ask("POST", PATH, headers=bearer(BOB))
    assert (busy.status_code, busy.headers["x-brimful-reason"]) == (429, "key_busy")
    assert float(busy.headers["retry-after-ms"]) >= 500
    assert behind.counted[-1] == ("bob", "key_busy")
    behind.go_on.set()
    assert (await first).status_code == 200
    behind.counted.clear()
    for _ in range(2):  # a refused body gives its place back
        refused = await behind.ask("POST", PATH, json={"n": 10_000}, headers=bearer(BOB))
        assert refused.status_code == 400
    assert behind.counted == [("bob", "bad_request")] * 2
    assert (await behind.get(bearer(BOB))).status_code == 200


async def test_rules_are_changed_as_a_whole_or_not_at_all(behind: Behind, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        behind.door.rules = Rules(parse_security({"keys": {"file": str(tmp_path / "none")}}))
    assert (await behind.get(bearer(ALICE))).status_code == 200
    behind.door.rules = Rules(parse_security({}))
    assert (await behind.get()).status_code == 200


def test_a_websocket_needs_an_open_path_and_a_key(behind: Behind) -> None:
    closed, locked = TestClient(Behind().app), TestClient(behind.app)
    for client in (closed, locked):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/v1/realtime"):
            pass
    with locked.websocket_connect("/v1/realtime", headers=bearer(ALICE)):
        pass


# Pages of other sites.

OURS, ALLOW = "https://chat.example.com", "access-control-allow-origin"
ASKS = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [
        ([], OURS, None),
        ([OURS], OURS, OURS),
        ([OURS, "http://localhost:3000"], "http://localhost:3000", "http://localhost:3000"),
        ([OURS], "https://evil.example.com", None),
        (["*"], "https://any.example.com", "*"),
    ],
)
async def test_a_page_may_read_answers_where_its_origin_is_named(origins, origin, allowed):
    behind, said = Behind(cors_origins=origins), {"origin": origin}
    answer = await behind.ask("POST", PATH, json={}, headers=said)
    refused = await behind.ask("POST", "/nowhere", json={}, headers=said)
    asked = await behind.ask("OPTIONS", PATH, headers={**said, **ASKS})
    assert (answer.status_code, answer.headers.get(ALLOW)) == (200, allowed)
    assert "origin" not in answer.json()["headers"]  # or the app's own middleware would answer it
    if allowed:  # a browser hides headers that are not named, Retry-After too
        assert refused.headers["access-control-expose-headers"] == "*"
    assert (refused.status_code, refused.headers.get(ALLOW)) == (404, allowed)
    assert (asked.status_code == 200, asked.headers.get(ALLOW)) == (allowed is not None, allowed)


@pytest.mark.parametrize("wrong", ["chat.example.com", f"{OURS}/", "https://A.example.com", "null"])
def test_what_no_browser_sends_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"args.security.cors_origins: .*an origin as browsers"):
        parse_security({"cors_origins": [wrong]}, "args.security")


# Bodies.


async def _parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def post(content: Any, path: str = PATH, headers: Any = None, **limits: Any) -> Any:
    return await Behind(limits=limits).ask("POST", path, content=content, headers=headers)


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b'{"prompt": "a", "n": 2}', {"prompt": "a", "n": 2}),
        ('{"prompt": "ä"}'.encode("utf-16"), {"prompt": "ä"}),
        (b'{"\\u006e": 3}', {"n": 3}),
        *((other, {}) for other in (b"", b"{", b"[1]", b"\xff\xfe\xfd")),
        (b'{"n": ' + b"9" * 5000 + b"}", {}),
    ],
)
async def test_the_app_gets_the_bytes_that_came(body: bytes, fields: dict[str, Any]) -> None:
    for content in (body, _parts(body[:7], body[7:])):
        seen = (await post(content)).json()
        assert (seen["body"], seen["fields"]) == (body.decode("latin-1"), fields)


@pytest.mark.parametrize(
    ("content", "headers", "said"),
    [
        (b"[" * 100_000, [], "body: JSON that is nested too deeply"),
        (
            b'{"\\u006e": "5"}',
            [],
            "n: '5' for each of 1 prompts is not allowed: together at most 4 (security.limits.",
        ),
        # A second type hides no JSON, and a strange one neither.
        (b'{"n": 100}', ["application/json", "multipart/x"], "n: 100 for each"),
        (b'{"n": 100}', ["multipart/x", "application/json"], "n: 100 for each"),
        (b'{"n": 100}', ["TEXT/plain"], "n: 100 for each"),
        (b'{"stop": "\\ud800"}', [], "stop: "),
        (b'{"top_k": 54661120633939034112}', [], "top_k: "),
    ],
)
async def test_a_body_that_asks_for_too_much_is_a_400_that_names_it(content, headers, said) -> None:
    answer = await post(
        content, headers=[("content-type", one) for one in headers], max_sequences=4
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, said.partition(":")[0])
    assert error["message"].startswith(said)


async def test_items_of_responses_that_vllm_would_fail_over_are_refused_there_alone() -> None:
    content = b'{"input": [{"type": "computer_call"}]}'
    assert (await post(content, "/v1/responses")).json()["error"]["param"] == "input[0]"
    assert (await post(content, "/v1/embeddings")).status_code == 200


async def test_a_form_is_not_parsed_and_a_limit_on_tokens_is_written_into_json() -> None:
    form = await Behind().ask("POST", PATH, files={"file": b"{}"})
    assert form.json()["fields"] == {}
    seen = (await post(b'{"messages": []}', "/v1/chat/completions", max_tokens=9)).json()
    assert json.loads(seen["body"]) == {"messages": [], "max_completion_tokens": 9}
    assert seen["fields"] == {"messages": []}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_long_is_one_413(chunked: bool) -> None:
    body = b'{"prompt": "' + b"a" * 2000 + b'"}'
    content = _parts(*(body[i : i + 100] for i in range(0, len(body), 100))) if chunked else body
    answer = await post(content, max_body_mb=0.001)
    error = answer.json()["error"]
    assert error["message"] == "body: longer than the 1000 bytes that are allowed"
    assert (error["param"], error["code"], error["type"]) == ("body", 413, "invalid_request_error")
    assert (await post(body[:1000], max_body_mb=0.001)).status_code == 200
