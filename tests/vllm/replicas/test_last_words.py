"""Streams that are cut, by a drain, a clock or a failure: each is told so."""

import asyncio
import inspect
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private import replica as rays
from ray.serve._private.constants import RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S

from replicas.door.messages import MessagesMiddleware
from replicas.server import last_words
from replicas.server.answer_clocks import AnswerClocks
from replicas.server.last_words import LastWords, LastWordsMiddleware, before_shutdown
from replicas.workarounds.disconnects import DisconnectMiddleware

START = {"type": "http.response.start", "status": 200}
STREAM = START | {"headers": [(b"content-type", b"text/event-stream; charset=utf-8")]}
JSON = START | {"headers": [(b"content-type", b"application/json")]}
TOKEN = {"type": "http.response.body", "body": b'data: {"a": 1}\n\n', "more_body": True}
LAST = {"type": "http.response.body", "body": b"data: [DONE]\n\n"}


async def answered(*begun: Any, path: str = "/v1/completions", ended: bool = False) -> list[Any]:
    """What is sent of an answer that has begun so when the replica's time is up."""
    words, sent, go_on = LastWords(), [], asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in begun:
            await send(message)
        await go_on.wait()
        if not ended:
            await send(TOKEN)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    task = asyncio.create_task(LastWordsMiddleware(app, words)(scope, None, send))
    await asyncio.sleep(0)
    words.say()
    for _ in range(10):  # it is said in turns of this loop
        await asyncio.sleep(0)
    go_on.set()
    await task
    assert not words.open
    return sent[len(begun) :]


async def test_a_stream_ends_with_an_error_event() -> None:
    (last,) = await answered(STREAM, TOKEN)
    assert not last.get("more_body")
    error, done = last["body"].decode().strip().split("\n\n")
    told = json.loads(error.removeprefix("data: "))["error"]
    assert (told["code"], told["type"]) == (503, "service_unavailable")
    assert done == "data: [DONE]"


async def test_a_stream_of_responses_ends_with_an_event_of_its_own() -> None:
    (last,) = await answered(STREAM, TOKEN, TOKEN, path="/v1/responses")
    name, data = last["body"].decode().strip().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["sequence_number"] == 2


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/"])
async def test_a_stream_of_messages_ends_with_an_event_of_anthropics(path: str) -> None:
    (last,) = await answered(STREAM, TOKEN, path=path)
    name, data = last["body"].decode().strip().split("\n")
    assert name == "event: error"
    told = json.loads(data.removeprefix("data: "))
    assert (told["type"], told["error"]["type"]) == ("error", "overloaded_error")


async def test_one_that_has_not_begun_is_told_to_come_again() -> None:
    start, body = await answered()
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert (start["status"], headers["x-brimful-reason"]) == (503, "no_replica")
    assert int(headers["retry-after-ms"]) >= 500
    assert json.loads(body["body"])["error"]["code"] == 503


async def test_half_an_answer_that_is_no_stream_and_a_whole_one_are_left_alone() -> None:
    assert await answered(JSON, TOKEN) == [TOKEN]
    assert await answered(STREAM, LAST, ended=True) == []


async def ended(app: Any, clocks: AnswerClocks, path: str = "/v1/completions") -> list[Any]:
    """What is sent of an app's answer under these clocks, behind all that stands around it."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    around = LastWordsMiddleware(DisconnectMiddleware(app), LastWords(clocks))
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    await MessagesMiddleware(around)(scope, asyncio.Event().wait, send)
    return sent


def slow(*begun: Any, then: BaseException | None = None) -> Any:
    """An app that begins its answer so, and then fails, or takes for ever."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in begun:
            await send(message)
        if then is not None:
            raise then
        await receive()

    return app


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b'data: {"error": {"message": "the answer did not end within '),
        ("/v1/responses", b'event: error\ndata: {"type": "error", "code": "408", '),
        ("/v1/messages", b'event: error\ndata: {"type": "error", "error": {"type": "timeout_er'),
    ],
)
async def test_a_clock_ends_a_stream_with_an_error_event_in_its_apis_shape(path, last) -> None:
    *begun, end = await ended(slow(STREAM, TOKEN), AnswerClocks(0.01), path)
    assert begun == [STREAM, TOKEN]
    assert end["body"].startswith(last)
    assert b"0.01 s that it has by http_options.request_timeout_s" in end["body"]
    assert not end.get("more_body")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
async def test_a_clock_before_the_first_byte_is_a_408_with_its_number(path: str) -> None:
    start, body = await ended(slow(), AnswerClocks(0.01), path)
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert (start["status"], headers["x-brimful-reason"]) == (408, "request_timeout")
    assert headers["x-should-retry"] == "false"
    told = json.loads(body["body"])
    assert ("type" in told) == (path == "/v1/messages")
    assert told["error"]["type"] == "timeout_error"
    assert "0.01 s" in told["error"]["message"]


async def test_an_answer_in_time_and_half_of_one_that_is_no_stream_are_left_alone() -> None:
    assert await ended(slow(JSON, TOKEN), AnswerClocks(0.01)) == [JSON, TOKEN]
    with pytest.raises(TimeoutError):  # the app's own
        await ended(slow(then=TimeoutError()), AnswerClocks(60.0))


async def test_a_stream_that_fails_ends_with_an_error_event_and_the_log_has_why() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    for begun in ((), (STREAM, TOKEN)):  # before it begins it is another's to answer
        assert sent == []
        failing = LastWordsMiddleware(slow(*begun, then=KeyError("secret")), LastWords())
        with pytest.raises(KeyError):
            await failing(scope, None, send)
    assert b'"code": 500' in sent[-1]["body"]
    assert b"secret" not in sent[-1]["body"]


@pytest.mark.parametrize(
    ("ingress", "given", "budget_s"),
    [
        (True, 1800.0, 1800.0),
        (True, 1.0, RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S),
        (False, 1.0, 1.0),
    ],
)
async def test_ray_says_when_a_drain_begins_and_how_long_it_may_take(
    monkeypatch: pytest.MonkeyPatch, ingress: bool, given: float, budget_s: float
) -> None:
    drained: list[Any] = []

    async def drain(replica: Any) -> None:
        drained.append(replica)

    assert asyncio.iscoroutinefunction(rays.Replica._perform_graceful_shutdown)
    monkeypatch.setattr(rays.Replica, "_perform_graceful_shutdown", drain)
    monkeypatch.setattr(last_words, "RAY_SERVE_ENABLE_DIRECT_INGRESS", True)
    told: list[float] = []
    before_shutdown(told.append)
    config = SimpleNamespace(graceful_shutdown_timeout_s=given)
    replica = SimpleNamespace(_deployment_config=config, _ingress=ingress)
    own: Callable[[Any], Any] = rays.Replica._perform_graceful_shutdown
    await own(replica)
    assert (told, drained) == ([budget_s], [replica])


def test_what_is_read_of_rays_replica_is_there() -> None:
    source = inspect.getsource(rays.Replica)
    assert "self._perform_graceful_shutdown()" in source
    assert "self._deployment_config.graceful_shutdown_timeout_s" in source
    assert "RAY_SERVE_ENABLE_DIRECT_INGRESS and self._ingress" in source


async def test_the_last_words_are_said_before_the_replica_is_killed() -> None:
    words, said = LastWords(), asyncio.Event()
    words.say = said.set  # type: ignore[method-assign]
    words.drain(0.0)
    await said.wait()


@pytest.mark.parametrize(
    ("budget_s", "after_s"), [(1800.0, 1797.0), (12.0, 9.0), (3.0, 2.25), (1.0, 0.75)]
)
async def test_of_a_drain_however_short_most_is_for_the_streams(monkeypatch, budget_s, after_s):
    told: list[Any] = []
    with monkeypatch.context() as patched:
        loop = asyncio.get_running_loop()
        patched.setattr(loop, "call_later", lambda after_s, say: told.append(after_s))
        LastWords().drain(budget_s)
    assert told == [after_s]
