"""Admission before vLLM's app and around its ``generate``: statuses, never a frame inside a 200."""

import functools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.exceptions import EngineDeadError

from controller.records import to_wire
from controller.request_slo import KEY, of_class
from replicas.admission.drain import EngineView
from replicas.admission.gate import Gate, current
from tests.unit.replicas.admission.builders import CLASSES
from tests.vllm.replicas.stand_in import (
    PROMPT,
    Engine,
    app_of,
    ask,
    before,
    client_of,
    dead,
    gate_of,
    never,
)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def gate(engine: Engine) -> Gate:
    return gate_of(engine)


@pytest.fixture
async def client(engine: Engine, gate: Gate) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(before(app_of(engine), engine, gate)) as made:
        yield made
    waiting = gate.admission.waiting
    assert (waiting.requests, waiting.running) == (0, 0)


async def test_a_class_brings_its_priority_and_a_request_its_own(client, engine):
    await ask(client, service_tier="batch")
    await ask(client)
    await ask(client, service_tier="batch", priority=0)
    await ask(client, service_tier="batch", priority=3)
    assert engine.priorities == [20, 10, 0, 3]


async def test_an_engine_that_serves_in_order_gets_no_priorities(gate, engine, client):
    plain = Engine()
    plain.vllm_config.scheduler_config.policy = "fcfs"
    gate.guard(plain)
    ticket = gate.ticket({}, {"service_tier": "batch"})
    del ticket
    assert [o async for o in plain.generate(PROMPT, SamplingParams(), "r")] == ["a", "b", "c"]
    assert plain.priorities == [0]


async def test_a_client_can_hold_its_wait_against_the_predicted_one(client, gate):
    assert "x-brimful-predicted-wait-ms" not in (await ask(client)).headers
    gate.admission.waiting.learn(EngineView(free_slots=1, prompt_tokens_per_s=10.0))
    assert (await ask(client)).headers["x-brimful-predicted-wait-ms"] == "300"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_timeout_is_a_503_and_an_abort(client, engine, stream):
    engine.outputs = never
    answer = await ask(client, {"x-request-timeout-seconds": "0.05"}, stream=stream)
    assert (answer.status_code, answer.headers["x-brimful-reason"]) == (503, "queue_timeout")
    assert answer.json()["error"]["code"] == 503
    assert engine.aborted == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_dies_before_the_first_byte_is_a_503_to_repeat(client, engine, stream):
    engine.outputs = dead
    answer = await ask(client, stream=stream)
    assert (answer.status_code, answer.headers["x-brimful-reason"]) == (503, "engine_failed")
    assert float(answer.headers["retry-after-ms"]) <= 1500
    engine.errored = True
    assert (await ask(client, stream=stream)).status_code == 503


async def test_an_error_that_is_the_first_frame_is_a_status(client, engine):
    async def outputs() -> AsyncIterator[str]:
        raise ValueError("too long")
        yield ""

    engine.outputs = outputs
    answer = await ask(client, stream=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "p"


@pytest.fixture
async def unlimited(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a replica if nobody is refused."""
    async with client_of(before(app_of(engine), engine, None)) as made:
        yield made


@pytest.mark.parametrize("stream", [False, True])
async def test_without_admission_who_waited_for_a_dead_engine_may_come_again(
    unlimited: httpx.AsyncClient, engine: Engine, stream: bool
) -> None:
    assert "abc" in (await ask(unlimited)).text
    engine.outputs = _dies_of(engine)
    answer = await ask(unlimited, stream=stream)
    assert answer.status_code == 503
    assert answer.headers["x-brimful-reason"] == "engine_failed"
    assert float(answer.headers["retry-after-ms"]) >= 500
    assert answer.json()["error"]["type"] == "service_unavailable"


CREATED = b'event: response.created\ndata: {"a": 1}\n\n'
PROGRESS = b"event: response.in_progress\ndata: {}\n\n"
DELTA = b"event: response.output_text.delta\ndata: {}\n\n"
FAILED = b'event: error\ndata: {"type": "error", "code": "400", "message": "no", "param": "p"}\n\n'
ANTHROPICS = (
    b'event: error\ndata: {"type": "error",'
    b' "error": {"type": "invalid_request_error", "message": "no"}}\n\n'
)


def streaming(*parts: bytes, engine: Any = None) -> Any:
    """An app whose stream is this, and over which vLLM fails where it asks an engine first."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        kind = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        for number, part in enumerate(parts):
            if number == 2 and engine is not None:
                async for _ in engine.generate(PROMPT, SamplingParams(), "r"):
                    pass
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def sent(app: Any, path: str = "/v1/responses") -> list[Any]:
    """The messages of an answer."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    await app({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    return messages


async def test_events_that_announce_an_answer_leave_with_its_first_token(engine, gate) -> None:
    for its in (gate, None):
        around = functools.partial(before, engine=engine, gate=its)
        start, first, second, _ = await sent(around(streaming(CREATED, PROGRESS, DELTA, DELTA)))
        assert start["status"] == 200
        assert (first["body"], second["body"]) == (CREATED + PROGRESS + DELTA, DELTA)
        _, whole = await sent(around(streaming(CREATED + PROGRESS)))
        assert whole["body"] == CREATED + PROGRESS  # a stream without a token
        _, first, second, _ = await sent(around(streaming(CREATED + DELTA, DELTA)))
        assert (first["body"], second["body"]) == (CREATED + DELTA, DELTA)


@pytest.mark.parametrize("error", [FAILED, ANTHROPICS])
async def test_an_error_event_that_comes_first_is_a_status(engine, gate, error: bytes) -> None:
    start, body = await sent(before(streaming(CREATED, error), engine, gate))
    told = json.loads(body["body"])["error"]
    assert (start["status"], told["message"]) == (400, "no")
    late = await sent(before(streaming(CREATED, DELTA, error), engine, gate))
    assert late[0]["status"] == 200


def _dies_of(engine: Engine) -> Callable[[], AsyncIterator[str]]:
    async def outputs() -> AsyncIterator[str]:
        engine.errored = True
        raise EngineDeadError
        yield ""

    return outputs


async def test_behind_the_door_a_body_is_read_once_and_admission_goes_by_what_was_read(
    engine: Engine, gate: Gate, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("bob sk-bob-0123456789 classes=batch,silver")
    app = before(app_of(engine), engine, gate, keys={"file": str(keys)})
    headers = {"authorization": "Bearer sk-bob-0123456789"}
    async with client_of(app) as made:
        assert (await ask(made, headers)).status_code == 200
        served = await ask(made, headers, service_tier="silver")
        hidden = b'{"service\\u005ftier": "gold"}'  # JSON's other way to write it
        refused = await made.post("/v1/completions", content=hidden, headers=headers)
    assert engine.priorities == [20, 10]
    assert served.json()["service_tier"] == "silver"
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")


async def told(engine: Engine, params: SamplingParams) -> dict[str, Any] | None:
    assert [o async for o in engine.generate(PROMPT, params, "r")] == ["a", "b", "c"]
    return engine.told[-1]


async def test_the_engine_is_told_what_a_class_is_promised_and_by_nobody_else() -> None:
    engine = Engine()
    gate = gate_of(engine)
    mine = SamplingParams(extra_args={"other": 1, KEY: {"itl_s": 1e-3}})
    for name in CLASSES.by_name:
        current.set(gate.ticket({}, {"service_tier": name}))
        promised = to_wire(of_class(CLASSES.by_name[name]))
        assert await told(engine, mine) == {"other": 1, KEY: promised}
    current.set(None)
    assert await told(engine, SamplingParams()) == {
        KEY: to_wire(of_class(CLASSES.by_name["silver"]))
    }
    assert mine.extra_args == {"other": 1, KEY: {"itl_s": 1e-3}}  # the client's own object


async def test_who_is_refused_whatever_its_prompt_is_does_not_reach_the_app(engine, gate) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(scope)

    gate.admission.waiting.learn(EngineView(free_slots=0, requests_per_s=0.001))
    async with client_of(before(app, engine, gate)) as made:
        late = await ask(made)
    assert (late.status_code, late.headers["x-brimful-reason"]) == (429, "deadline")
