"""Errors of `/v1/messages` in Anthropic's shape, whoever made them."""

import json
from typing import Any

import anthropic
import httpx
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from controller.errors import ConfigError
from replicas.admission.answers import refusal
from replicas.admission.anthropics import STATUS, error, error_event, is_messages
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.messages import MessagesMiddleware
from replicas.door.settings import parse_security

OPENAIS = {"error": {"message": "no", "type": "BadRequestError", "param": "a", "code": 400}}
OPEN = {"extra_paths": ["POST /v1/messages"]}
HI: Any = [{"role": "user", "content": "hi"}]


def behind(answer: Response) -> httpx.ASGITransport:
    """An app that gives this answer to everything."""

    async def given(request: Request) -> Response:
        return answer

    return httpx.ASGITransport(
        MessagesMiddleware(Starlette(routes=[Route("/{_:path}", given, methods=["POST"])]))
    )


async def post(answer: Response, path: str = "/v1/messages") -> httpx.Response:
    async with httpx.AsyncClient(transport=behind(answer), base_url="http://r") as client:
        return await client.post(path)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/", "/v1/messages/count_tokens"])
async def test_an_error_keeps_its_status_and_headers(path: str, status: int, kind: str) -> None:
    answer = await post(JSONResponse(OPENAIS, status, {"retry-after": "3"}), path)
    assert answer.json() == {"type": "error", "error": {"type": kind, "message": "no"}}
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "3")
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_an_error_in_parts_and_one_of_fastapi_are_whole() -> None:
    async def parts() -> Any:
        for part in (json.dumps(OPENAIS)[:9], json.dumps(OPENAIS)[9:]):
            yield part

    answer = await post(StreamingResponse(parts(), 400))
    assert answer.json() == error(400, "no")
    assert (await post(JSONResponse({"detail": "Not Found"}, 404))).json() == error(
        404, "Not Found"
    )


@pytest.mark.parametrize("text", ["plain", "[]", "{}", "[" * 100_000, '{"error": {"code": 3}}', ""])
async def test_what_says_nothing_that_is_known_is_left_alone(text: str) -> None:
    assert (await post(PlainTextResponse(text, 500))).text == text


async def test_other_paths_and_answers_are_left_alone() -> None:
    assert (await post(JSONResponse(OPENAIS, 400), "/v1/completions")).json() == OPENAIS
    assert (await post(JSONResponse(OPENAIS, 400), "/v1/messagesx")).json() == OPENAIS
    assert (await post(JSONResponse(OPENAIS))).json() == OPENAIS
    assert is_messages("/v1/messages/batches") and not is_messages("/v1/message")


def test_a_type_says_which_status_it_was() -> None:
    assert STATUS["invalid_request_error"] == 400
    assert STATUS["overloaded_error"] == 503
    told = error_event(503, "gone").decode()
    assert told == (
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", '
        '"message": "gone"}}\n\n'
    )


def client_of(app: Any, **options: Any) -> anthropic.AsyncAnthropic:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(MessagesMiddleware(app)))
    told = {"api_key": "-", "max_retries": 0, **options}
    return anthropic.AsyncAnthropic(base_url="http://r", http_client=http, **told)


async def test_anthropics_client_is_told_which_key_opens_it() -> None:
    app = DoorMiddleware(PlainTextResponse(""), Door(Rules(parse_security({}))))
    with pytest.raises(
        anthropic.NotFoundError, match=r"extra_paths: \[POST /v1/messages\]"
    ) as closed:
        await client_of(app).messages.create(model="m", max_tokens=1, messages=HI)
    assert closed.value.type == "not_found_error"


async def test_anthropics_client_waits_as_long_as_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("anyio.sleep", sleep)

    def refusing(retry_s: float) -> Any:
        told = refusal("queue_full", "gold", "", retry_s, 0.0)
        return JSONResponse(told.body, told.status, told.headers)

    for retry_s, waited in ((7.0, [7.0, 7.0]), (300.0, [])):
        waits.clear()
        made = client_of(refusing(retry_s), max_retries=2)
        with pytest.raises(anthropic.RateLimitError) as refused:
            await made.messages.create(model="m", max_tokens=1, messages=HI)
        assert refused.value.type == "rate_limit_error"
        assert waits == waited  # beyond 120 s it is told not to ask again


def test_the_entry_is_one_that_the_configuration_takes() -> None:
    assert parse_security(OPEN).extra_paths == ["POST /v1/messages"]
    with pytest.raises(ConfigError):
        parse_security({"extra_paths": ["v1/messages"]})
