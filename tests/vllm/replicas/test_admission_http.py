"""Admission before vLLM's app and around its ``generate``: statuses, never a frame inside a 200."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.engine.input_processor import InputProcessor
from vllm.v1.engine.output_processor import OutputProcessor

from controller.classes import one_class, parse_admission
from controller.request_slo import KEY, of_class
from replicas.admission.drain import EngineView
from replicas.admission.gate import Gate, WaitedTooLongError, current, prompt_tokens
from replicas.admission.http import with_class
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


async def test_a_priority_that_vllm_does_not_read_is_brought_along(gate, engine):
    ticket = gate.ticket({}, {"service_tier": "batch", "priority": 3})  # of messages, in the body
    current.set(ticket)
    assert [o async for o in engine.generate(PROMPT, SamplingParams(), "r")] == ["a", "b", "c"]
    current.set(None)
    assert engine.priorities == [3]


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


async def test_an_engine_that_dies_later_ends_the_stream_with_its_error(client, engine):
    async def outputs() -> AsyncIterator[str]:
        yield "a"
        raise EngineDeadError

    engine.outputs = outputs
    answer = await ask(client, stream=True)
    assert answer.status_code == 200
    assert '{"error": {' in answer.text.split("\n\n")[1]


async def test_an_error_that_is_the_first_frame_is_a_status(client, engine):
    async def outputs() -> AsyncIterator[str]:
        raise ValueError("too long")
        yield ""

    engine.outputs = outputs
    answer = await ask(client, stream=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "p"


async def test_without_classes_a_tier_is_what_vllm_makes_of_it() -> None:
    engine = Engine()
    gate = gate_of(engine, one_class(None), named=False)
    async with client_of(before(app_of(engine), engine, gate)) as client:
        answer = await ask(client, service_tier="flex")
    assert answer.json()["service_tier"] is None
    assert gate.admission.counts.let_in == {"default": 1}


@pytest.mark.parametrize(("frac", "tokens"), [(1.0, 101), (0.1, 11), (0.0, 0)])
async def test_a_prompt_counts_by_the_share_that_is_computed(engine, gate, frac, tokens) -> None:
    waiting = gate.admission.waiting
    waiting.engine = replace(waiting.engine, computed_frac=frac)
    outputs = engine.generate({"prompt_token_ids": [1] * 101}, SamplingParams(), "r")
    assert waiting.tokens == tokens
    assert [output async for output in outputs] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        (PROMPT, 3),
        (SimpleNamespace(prompt_token_ids=[1]), 1),
        ({"prompt_embeds": [[0.0], [0.0]]}, 2),
        ({"prompt_token_ids": None}, 0),
        ("a river", 0),
    ],
)
def test_a_prompts_tokens_are_counted(prompt: Any, tokens: int) -> None:
    assert prompt_tokens(prompt) == tokens


def test_only_the_first_event_of_a_stream_is_changed() -> None:
    assert with_class(b'data: {"a":1}\n\ndata: {"b":2}\n\n', "x") == (
        b'data: {"service_tier":"x","a":1}\n\ndata: {"b":2}\n\n'
    )
    assert with_class(b": keep-alive\n\n", "x") == b": keep-alive\n\n"


@pytest.fixture
async def unlimited(engine: Engine) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a replica where nobody is refused."""
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


async def test_without_admission_other_answers_stay_what_they_were(unlimited):
    assert (await ask(unlimited, service_tier="nothing")).json()["text"] == "abc"
    assert (await ask(unlimited, stream=True)).text.count("data: ") == 4


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


@pytest.mark.parametrize(
    ("outputs", "admits", "reason"),
    [
        (never, True, "queue_timeout"),
        (dead, True, "engine_failed"),
        (dead, False, "engine_failed"),
    ],
)
async def test_a_stream_that_has_only_been_announced_is_refused(
    engine, gate, outputs, admits, reason
):
    engine.outputs, engine.errored = outputs, not admits
    app = before(
        streaming(CREATED, PROGRESS, DELTA, engine=engine), engine, gate if admits else None
    )
    headers = {"x-request-timeout-seconds": "0.05"}
    # An engine that died is for the log, whatever its client was told.
    transport = httpx.ASGITransport(app, raise_app_exceptions=outputs is never)
    async with httpx.AsyncClient(transport=transport, base_url="http://r") as made:
        answer = await made.post("/v1/responses", json={}, headers=headers)
    assert (answer.status_code, answer.headers["x-brimful-reason"]) == (503, reason)
    if outputs is dead:
        with pytest.raises(EngineDeadError):
            await sent(app)


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
        gate.admission.configure(CLASSES, parse_admission({"max_body_mb": 0.0001}))
        long = await ask(made, headers, prompt="a" * 200)
    assert engine.priorities == [20, 10]
    assert served.json()["service_tier"] == "silver"
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
    assert long.status_code == 413


async def told(engine: Engine, params: SamplingParams) -> dict[str, Any] | None:
    assert [o async for o in engine.generate(PROMPT, params, "r")] == ["a", "b", "c"]
    return engine.told[-1]


async def test_the_engine_is_told_what_a_class_is_promised_and_by_nobody_else() -> None:
    engine = Engine()
    gate = gate_of(engine)
    mine = SamplingParams(extra_args={"other": 1, KEY: {"itl_s": 1e-3}})
    for name in CLASSES.by_name:
        current.set(gate.ticket({}, {"service_tier": name}))
        promised = of_class(CLASSES.by_name[name]).to_wire()
        assert await told(engine, mine) == {"other": 1, KEY: promised}
    current.set(None)
    assert await told(engine, SamplingParams()) == {
        KEY: of_class(CLASSES.by_name["silver"]).to_wire()
    }
    assert mine.extra_args == {"other": 1, KEY: {"itl_s": 1e-3}}  # the client's own object


async def test_where_no_classes_are_configured_nothing_is_told() -> None:
    engine = Engine()
    gate_of(engine, one_class(None), named=False)
    assert await told(engine, SamplingParams()) is None
    assert await told(engine, SamplingParams(extra_args={KEY: {"itl_s": 1e-3}})) == {}


TOKENS = {"type": "token", "prompt_token_ids": [1, 2, 3]}


class Frontend(AsyncLLM):
    """vLLM's ``generate``, ``add_request`` and output processor; nothing is behind them."""

    errored = property(lambda self: False)

    def __init__(self) -> None:
        self.output_processor = OutputProcessor(None, log_stats=False)
        self.log_requests = False
        self.model_config = SimpleNamespace(is_encoder_decoder=False)
        self.vllm_config = SimpleNamespace(
            cache_config=SimpleNamespace(kv_sharing_fast_prefill=False),
            scheduler_config=SimpleNamespace(policy="fcfs"),
        )
        self.sent: list[str] = []
        self.engine_core = SimpleNamespace(
            add_request_async=self._send, abort_requests_async=self._drop, shutdown=lambda **_: None
        )
        self.input_processor = SimpleNamespace(
            process_inputs=self._request, assign_request_id=InputProcessor.assign_request_id
        )

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def check_admission(self, *args: Any, **options: Any) -> None:
        pass

    def _run_output_handler(self) -> None:
        pass

    async def _send(self, request: EngineCoreRequest) -> None:
        self.sent.append(request.request_id)

    async def _drop(self, request_ids: Any) -> None:
        pass

    def _request(
        self, request_id: str, prompt: Any, params: Any, resumable: bool = False, **_: Any
    ) -> EngineCoreRequest:
        tokens = list(prompt["prompt_token_ids"])
        return EngineCoreRequest(
            request_id, tokens, None, params, None, 0.0, None, None, None, resumable=resumable
        )

    def give(self, *ids: str, last: bool = False) -> None:
        reason = FinishReason.LENGTH if last else None
        self.output_processor.process_outputs(
            [EngineCoreOutput(one, [1], finish_reason=reason) for one in ids]
        )


def guarded() -> tuple[Frontend, Gate]:
    engine = Frontend()
    return engine, gate_of(engine)


async def called(
    engine: Frontend, gate: Gate, kind: RequestOutputKind, n: int, **headers: str
) -> Any:
    params = SamplingParams(max_tokens=4, detokenize=False, n=n, output_kind=kind)
    current.set(gate.ticket({k.replace("_", "-"): v for k, v in headers.items()}, {}))
    return [output async for output in engine.generate(TOKENS, params, "one trace")]


def begin(engine: Frontend, gate: Gate, kind: RequestOutputKind, n: int, **headers: str) -> Any:
    return asyncio.create_task(called(engine, gate, kind, n, **headers))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [RequestOutputKind.FINAL_ONLY, RequestOutputKind.DELTA])
async def test_the_first_token_of_any_of_them_is_that_of_the_call(kind: RequestOutputKind) -> None:
    engine, gate = guarded()
    task = begin(engine, gate, kind, 3)
    await settle()
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (0, 1)
    assert len(engine.sent) == 3 and gate._unstarted.keys() == {*engine.sent}
    # Beside one that is not waited for, as that of a call that was aborted meanwhile.
    engine.give("unknown", engine.sent[1])
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (1, 0)
    assert not gate._unstarted
    engine.give(*engine.sent, last=True)
    assert await task
    assert gate.admission.waiting.running == 0
    assert sum(gate.admission.counts.started.values()) == 1


async def test_who_is_refused_whatever_its_prompt_is_does_not_reach_the_app(engine, gate) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(scope)

    gate.admission.waiting.learn(EngineView(free_slots=0, requests_per_s=0.001))
    async with client_of(before(app, engine, gate)) as made:
        late = await ask(made)
        large = await ask(made, {"x-large": "y" * 17_000})
    assert (late.status_code, late.headers["x-brimful-reason"]) == (429, "deadline")
    assert (large.status_code, large.json()["error"]["param"]) == (431, "x-large")


async def test_a_prompt_that_its_handler_never_waits_for_keeps_no_place(engine, gate) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        engine.generate(PROMPT, SamplingParams(), "r")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    await sent(before(app, engine, gate))
    assert gate.admission.counts.let_in == {"silver": 1}
    assert gate.admission.waiting.requests == 0


@pytest.mark.parametrize("begun", [0, 1])
async def test_requests_of_one_name_have_each_its_own_timeout(begun: int) -> None:
    engine, gate = guarded()
    final = RequestOutputKind.FINAL_ONLY
    tasks = [begin(engine, gate, final, 1, x_request_timeout_seconds="0.2") for _ in range(2)]
    await settle()
    engine.give(engine.sent[begun])
    with pytest.raises(WaitedTooLongError):
        await tasks[1 - begun]
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (1, 0)
    engine.give(engine.sent[begun], last=True)
    assert await tasks[begun]  # however long it took: its timeout was for the first token
    assert sum(gate.admission.counts.started.values()) == 1
    assert not gate._unstarted


async def test_a_call_that_its_client_leaves_leaves_no_name_behind() -> None:
    engine, gate = guarded()
    for _ in range(3):
        task = begin(engine, gate, RequestOutputKind.DELTA, 2)
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert len(engine.sent) == 6 and not gate._unstarted
    assert (gate.admission.waiting.running, gate.admission.waiting.requests) == (0, 0)


async def test_a_request_of_which_a_prompt_has_begun_has_not_waited_too_long() -> None:
    engine, gate = guarded()
    ticket = gate.ticket({}, {})
    current.set(ticket)
    params = SamplingParams(max_tokens=4, detokenize=False, output_kind=RequestOutputKind.DELTA)
    calls = [asyncio.ensure_future(anext(engine.generate(TOKENS, params, "a"))) for _ in range(2)]
    await settle()
    first, second = ticket._limits
    assert second.when() is not None
    engine.give(engine.sent[0])
    await calls[0]
    assert (second.when(), ticket.limit(1.0).when()) == (None, None)
    calls[1].cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert first.when() is None
    ticket.close()
