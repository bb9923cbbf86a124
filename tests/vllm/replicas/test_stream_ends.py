"""How streams of `/v1/responses` end that fail, by any server below."""

import json
from typing import Any

import pytest

from replicas.workarounds.grammar_answers import GrammarError
from replicas.workarounds.stream_ends import StreamEndMiddleware, give_reason

STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]


def failing(error: BaseException, headers: Any, *, ended: bool = False, chunks: int = 2) -> Any:
    """An app that fails after so many chunks, as vLLM's does: over what it makes of an error."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for _ in range(chunks):
            await send({"type": "http.response.body", "body": b"data: a\n\n", "more_body": True})
        if ended:
            await send({"type": "http.response.body", "body": b""})
        raise RuntimeError("response already started") from error

    return app


async def sent(app: Any, path: str = "/v1/responses") -> list[Any]:
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    error = None
    try:
        await StreamEndMiddleware(app)({"type": "http", "path": path}, None, send)
    except RuntimeError as raised:
        error = raised
    return [error, *messages]


async def test_a_stream_ends_with_an_event_that_says_why() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        give_reason(GrammarError("the grammar allows no token"))
        await failing(ValueError("no such event"), STREAM)(scope, receive, send)

    raised, *_, last = await sent(app)
    event, data = last["body"].decode().strip().split("\n")
    assert raised is None
    assert event == "event: error"
    fields = {
        "code": "400",
        "message": "structured output: the grammar allows no token",
        "param": None,
    }
    error = {**fields, "type": "invalid_request_error"}
    event = {**fields, "type": "error", "sequence_number": 2, "error": error}
    assert json.loads(data.removeprefix("data: ")) == event
    assert not last.get("more_body")


async def test_an_error_that_nobody_expected_is_not_told_but_logged() -> None:
    raised, *_, last = await sent(failing(KeyError("secret"), STREAM))
    assert isinstance(raised, RuntimeError)
    assert b'"code": "500"' in last["body"]
    assert b"secret" not in last["body"]
    assert b'"sequence_number": 2' in last["body"]


@pytest.mark.parametrize(
    ("app", "path"),
    [
        (failing(KeyError("a"), [(b"content-type", b"application/json")]), "/v1/responses"),
        (failing(KeyError("a"), STREAM, ended=True), "/v1/responses"),
        (failing(KeyError("a"), STREAM), "/v1/completions"),
    ],
)
async def test_nothing_is_added_to_any_other_answer(app: Any, path: str) -> None:
    raised, *messages = await sent(app, path)
    assert isinstance(raised, RuntimeError)
    assert b"error" not in messages[-1]["body"]
