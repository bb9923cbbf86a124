"""How answers end: whole, by a failure, by their client, by a clock, by a drain; and in what words.

Errors have the shape of the API that was asked, whoever made them.
"""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve._private import replica as rays
from ray.serve._private.constants import RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S

from replicas.admission.answers import Answer
from replicas.admission.asgi import reasons
from replicas.server import stream_ends
from replicas.server.answer_clocks import AnswerClocks
from replicas.server.egress import LeavingTokens
from replicas.server.stream_ends import OpenAnswers, StreamEndMiddleware, before_shutdown

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
START = {"type": "http.response.start", "status": 200}
STREAM = START | {"headers": [(b"content-type", b"text/event-stream; charset=utf-8")]}
LEFT = {"type": "http.disconnect"}


def chunk(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


TOKEN = chunk(b'data: {"a": 1}\n\n')


class Client:
    """One request, and what its client was sent."""

    def __init__(self, path: str = CHAT, method: str = "POST") -> None:
        self.scope: Any = {"type": "http", "method": method, "path": path, "headers": []}
        self.sent: list[Any] = []
        self.messages: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def ask(self, app: Any, answers: OpenAnswers | None = None, **more: Any) -> list[Any]:
        around = StreamEndMiddleware(app, answers or OpenAnswers(), **more)
        await around(self.scope, self.messages.get, self.send)
        return self.sent

    async def until_sent(self, count: int) -> None:
        while len(self.sent) < count:  # noqa: ASYNC110 - the app has no event for it
            await asyncio.sleep(0)


def app_that(*begun: Any, then: BaseException | None = None, reason: Any = None) -> Any:
    """An app that begins its answer so, and then fails, or waits until its client is gone."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in begun:
            await send(message)
        if reason is not None:
            reasons.get().append(reason)
        if then is not None:
            raise then
        await receive()
        await send(TOKEN)

    return app


def told(event: bytes) -> dict[str, Any]:
    """What the last event of a stream says of an error."""
    said: dict[str, Any] = json.loads(event.partition(b"data: ")[2].partition(b"\n")[0])
    return said


@pytest.mark.parametrize(
    ("path", "event"),
    [
        (CHAT, b'data: {"error": {"message": "the answer did not end within '),
        (RESPONSES, b'event: error\ndata: {"type": "error", "code": "408", '),
        (MESSAGES, b'event: error\ndata: {"type": "error", "error": {"type": "timeout_error"'),
        (f"{MESSAGES}/", b'event: error\ndata: {"type": "error", '),
    ],
)
async def test_a_clock_ends_a_stream_with_an_error_event_in_its_apis_shape(path, event) -> None:
    sent = await Client(path).ask(app_that(STREAM, TOKEN, TOKEN), OpenAnswers(AnswerClocks(0.01)))
    *begun, last = sent
    assert begun == [STREAM, TOKEN, TOKEN]
    assert last["body"].startswith(event)
    assert b"0.01 s that it has by http_options.request_timeout_s" in last["body"]
    assert last["body"].endswith(b"data: [DONE]\n\n") == (path == CHAT)
    assert told(last["body"]).get("sequence_number", 2) == 2
    assert not last.get("more_body")


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_clock_before_the_first_byte_is_a_408_with_its_number(path: str) -> None:
    start, body = await Client(path).ask(app_that(), OpenAnswers(AnswerClocks(0.01)))
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert (start["status"], headers["x-brimful-reason"]) == (408, "request_timeout")
    assert headers["x-should-retry"] == "false"
    said = json.loads(body["body"])
    assert ("type" in said) == (path == MESSAGES)
    assert said["error"]["type"] == "timeout_error"
    assert "0.01 s" in said["error"]["message"]


async def drained(app: Any) -> list[Any]:
    """What a client is sent when the time of its replica is up."""
    answers, client = OpenAnswers(), Client()
    task = asyncio.create_task(client.ask(app, answers))
    await asyncio.sleep(0.01)
    answers.end()
    await asyncio.sleep(0.01)
    client.messages.put_nowait(LEFT)
    await task
    assert not answers.open
    return client.sent


async def test_a_drain_ends_streams_and_tells_others_to_come_again() -> None:
    *_, last = await drained(app_that(STREAM, TOKEN))
    error = told(last["body"])["error"]
    assert (error["code"], error["type"]) == (503, "service_unavailable")
    start, body = await drained(app_that())
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert (start["status"], headers["x-brimful-reason"]) == (503, "no_replica")
    assert int(headers["retry-after-ms"]) >= 500
    assert json.loads(body["body"])["error"]["code"] == 503


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
@pytest.mark.parametrize("begun", [(), (STREAM, TOKEN)])
async def test_a_failure_ends_an_answer_and_is_told_to_the_log_alone(path: str, begun: Any) -> None:
    client = Client(path)
    with pytest.raises(KeyError):
        await client.ask(app_that(*begun, then=KeyError("secret")))
    assert told(client.sent[-1]["body"] if begun else b"data: " + client.sent[-1]["body"])
    assert b"500" in client.sent[-1]["body"] and b"secret" not in client.sent[-1]["body"]
    assert client.sent[:1] == [STREAM] or client.sent[0]["status"] == 500


async def test_a_reason_that_is_the_clients_is_told_to_it_and_not_to_the_log() -> None:
    why = Answer(400, "bad_request", "the grammar allows no token")
    started = RuntimeError("response already started")
    *_, last = await Client(RESPONSES).ask(app_that(STREAM, TOKEN, then=started, reason=why))
    fields = {"code": "400", "message": "the grammar allows no token", "param": None}
    error = {**fields, "type": "invalid_request_error"}
    event = {**fields, "type": "error", "sequence_number": 1, "error": error}
    assert told(last["body"]) == event
    start, _ = await Client(RESPONSES).ask(app_that(then=started, reason=why))
    assert start["status"] == 400  # held back until there is a token


async def test_a_request_that_is_cancelled_hears_of_a_disconnect_and_ends_by_itself() -> None:
    client, seen, ended = Client(), [], asyncio.Event()
    body = {"type": "http.request", "body": b"{}"}
    client.messages.put_nowait(body)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())
        await send(STREAM)
        seen.extend([await receive(), await receive()])
        await send(TOKEN)
        ended.set()
        raise RuntimeError("of no interest to anybody")

    request = asyncio.create_task(client.ask(app))
    await client.until_sent(1)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await ended.wait()
    assert seen == [body, LEFT, LEFT]
    assert client.sent == [STREAM]


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
    monkeypatch.setattr(stream_ends, "RAY_SERVE_ENABLE_DIRECT_INGRESS", True)
    told: list[float] = []
    before_shutdown(told.append)
    config = SimpleNamespace(graceful_shutdown_timeout_s=given)
    replica: Any = SimpleNamespace(_deployment_config=config, _ingress=ingress)
    await rays.Replica._perform_graceful_shutdown(replica)
    assert (told, drained) == ([budget_s], [replica])


@pytest.mark.parametrize(("budget_s", "after_s"), [(1800.0, 1797.0), (1.0, 0.75)])
async def test_of_a_drain_however_short_most_is_for_the_streams(monkeypatch, budget_s, after_s):
    told: list[Any] = []
    with monkeypatch.context() as patched:
        loop = asyncio.get_running_loop()
        patched.setattr(loop, "call_later", lambda after_s, say: told.append(after_s))
        OpenAnswers().drain(budget_s)
    assert told == [after_s]


# Gaps between the tokens that leave.


async def gaps_of(
    *chunks: tuple[float, bytes], limit_s: float | None = 0.05, reading_s: float = 0.0
) -> tuple[int, int]:
    """How many, and how many late, of a stream of these chunks, each after its wait.

    Args:
        reading_s: what its client takes to read each.
    """
    now_s, client = [0.0], Client()
    tokens = LeavingTokens(lambda: now_s[0])
    tokens.limit_s = limit_s

    async def slow(message: Any) -> None:
        now_s[0] += reading_s

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(STREAM)
        for wait_s, body in chunks:
            now_s[0] += wait_s
            await send(chunk(body))
        now_s[0] += 1.0
        await send(chunk(b"", more=False))

    client.send = slow  # type: ignore[method-assign]
    await client.ask(app, leaving=tokens)
    return tokens.gaps.n, tokens.gaps.late


async def test_gaps_count_from_the_second_chunk_on_and_its_end_is_no_token() -> None:
    a = b"data: a\n\n"
    assert await gaps_of((9.0, a), (0.04, a), (0.055, a), (0.06, b"data: [DONE]\n\n")) == (2, 1)
    assert await gaps_of((0.055, a), (0.055, a), limit_s=None) == (1, 0)
    assert await gaps_of(*[(0.04, a)] * 4, reading_s=3.0) == (3, 0)  # its own time
    others = (b": keep-alive\n\n", b'data: {"error": {}}\n\n', b"")
    assert await gaps_of(*[(0.055, body) for body in (a, *others)]) == (0, 0)


@pytest.mark.parametrize(
    ("before", "delta", "after"),
    [
        (
            [b"event: message_start\n", b"event: content_block_start\n"],
            b"event: content_block_delta\n",
            [b"event: content_block_stop\n", b"event: message_delta\n", b"event: message_stop\n"],
        ),
        (
            [b"event: response.created\n", b"event: response.output_item.added\n"],
            b"event: response.output_text.delta\n",
            [b"event: response.output_text.done\n", b"event: error\n"],
        ),
    ],
)
async def test_of_named_events_those_with_a_token_count(before, delta, after) -> None:
    events = [*((0.055, one) for one in before), (0.055, delta), (0.04, delta), (0.055, after[0])]
    events += [(0.0, delta), *((0.055, one) for one in after)]
    found = await gaps_of(*((wait_s, body + b"data: {}") for wait_s, body in events))
    assert found == (2, 1)  # of the second the whole time, and not from the event between


# Errors of /v1/messages in Anthropic's shape.
