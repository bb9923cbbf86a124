"""Admission around vLLM's own app and engine, asked by OpenAI's own client over HTTP."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import APIStatusError, RateLimitError

from replicas.admission.drain import EngineView
from tests.vllm.replicas.admission_app import SLOTS, Served, serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
async def served(tiny_llama) -> AsyncIterator[Served]:
    async with serving(tiny_llama) as made:
        yield made


@pytest.fixture(autouse=True)
async def fresh(served: Served) -> AsyncIterator[None]:
    served.admit()
    yield
    await served.idle()


async def refused(call: Any) -> APIStatusError:
    with pytest.raises(APIStatusError) as caught:
        await call
    return caught.value


async def leave(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("name", ["gold", "silver"])
async def test_the_class_that_served_is_in_the_answer(served: Served, name: str) -> None:
    whole = await served.complete(2, extra_body={"service_tier": name})
    assert whole.model_extra["service_tier"] == name
    assert whole.usage.completion_tokens == 2
    stream = await served.complete(3, stream=True, extra_body={"service_tier": name})
    chunks = [chunk async for chunk in stream]
    assert chunks[0].model_extra["service_tier"] == name
    assert len([c for c in chunks if c.choices]) >= 3
    headed = await served.complete(1, extra_headers={"x-llm-d-inference-objective": name})
    assert headed.model_extra["service_tier"] == name


async def test_who_names_no_class_gets_vllms_own_answer(served: Served) -> None:
    answer = await served.complete()
    assert answer.model_extra.get("service_tier") is None
    assert served.gate.admission.counts.let_in == {"silver": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_is_a_429_with_a_time_to_come_again(served, stream):
    served.admit(max_waiting=2, shed_at=1.0)
    tasks = await served.busy(SLOTS + 2)
    error = await refused(served.complete(stream=stream))
    assert isinstance(error, RateLimitError)
    assert error.response.headers["x-brimful-reason"] == "queue_full"
    assert float(error.response.headers["retry-after-ms"]) >= 500
    assert int(error.response.headers["retry-after"]) >= 1
    assert error.body["type"] == "rate_limit_error"
    assert error.type == "rate_limit_error"
    await leave(tasks)


@pytest.mark.parametrize("stream", [False, True])
async def test_who_would_be_late_is_told_before_the_first_byte(served, stream):
    tasks = await served.busy(SLOTS + 1)
    served.gate.admission.waiting.learn(EngineView(free_slots=-1, full=True, requests_per_s=1.0))
    late = {"x-request-timeout-seconds": "0.5"}
    error = await refused(served.complete(stream=stream, extra_headers=late))
    assert error.status_code == 429
    assert error.response.headers["x-brimful-reason"] == "deadline"
    await leave(tasks)


@pytest.mark.parametrize("stream", [False, True])
async def test_who_waited_too_long_gets_503_and_leaves_the_engine(served, stream):
    tasks = await served.busy(SLOTS)
    error = await refused(served.complete(stream=stream, extra_body={"service_tier": "hasty"}))
    assert error.status_code == 503
    assert error.response.headers["x-brimful-reason"] == "queue_timeout"
    assert served.gate.admission.waiting.requests == 0
    await leave(tasks)


async def test_the_client_comes_again_when_it_was_told_to_and_is_served(served: Served) -> None:
    served.admit(max_waiting=1)
    tasks = await served.busy(SLOTS + 1)
    again = served.client.with_options(max_retries=2)
    call = asyncio.create_task(again.completions.create(model="m", prompt="a", max_tokens=1))
    await served.until(lambda: served.gate.admission.counts.refused)
    await leave(tasks)
    assert (await call).usage.completion_tokens == 1


async def test_classes_are_served_in_their_order(served: Served) -> None:
    tasks = await served.busy(SLOTS)
    ended: list[str] = []

    async def ask(name: str) -> None:
        await served.complete(1, extra_body={"service_tier": name})
        ended.append(name)

    asks = []
    for name in ("silver", "silver", "gold"):
        before = served.inside()
        asks.append(asyncio.create_task(ask(name)))
        await served.until(lambda before=before: served.inside() == before + 1)
    await leave(tasks[:1])
    await asyncio.gather(*asks)
    assert ended == ["gold", "silver", "silver"]
    await leave(tasks)


async def test_a_client_that_leaves_is_aborted_in_the_engine(served: Served) -> None:
    tasks = await served.busy(SLOTS + 3)
    await leave(tasks)
    streams = [await served.complete(900, stream=True) for _ in range(SLOTS)]
    for stream in streams:
        await anext(aiter(stream))
        await stream.close()
    await served.idle()  # KV blocks and queue slots are back at zero


async def test_several_prompts_of_one_request_are_let_in_or_none(served: Served) -> None:
    served.admit(max_waiting=1, shed_at=1.0)
    tasks = await served.busy(SLOTS)
    error = await refused(
        served.client.completions.create(model="m", prompt=["a", "b", "c"], max_tokens=1)
    )
    assert error.status_code == 429
    assert served.inside() == SLOTS
    await leave(tasks)
    both = await served.client.completions.create(model="m", prompt=["a", "b"], max_tokens=1)
    assert len(both.choices) == 2


async def test_one_with_more_prompts_than_there_are_places_is_served_in_parts(served):
    served.admit()
    many = await served.client.completions.create(
        model="m", prompt=["a b c"] * 25, max_tokens=2, extra_body={"service_tier": "gold"}
    )
    assert len(many.choices) == 25


@pytest.mark.parametrize(
    ("headers", "body", "status", "param"),
    [
        ({}, {"service_tier": "platinum"}, 400, "service_tier"),
        ({"x-llm-d-inference-objective": "?"}, {}, 400, "x-llm-d-inference-objective"),
        ({"x-request-timeout-seconds": "-1"}, {}, 400, "x-request-timeout-seconds"),
        ({"x-request-timeout-seconds": "1e12"}, {}, 400, "x-request-timeout-seconds"),
        ({"x-vllm-priority": "99999999999999999999"}, {}, 400, "x-vllm-priority"),
        ({}, {"priority": 2**63}, 400, "priority"),
        ({"x-big": "y" * 30_000}, {}, 431, "x-big"),
        ({}, {"prompt": "a" * 2_000_000}, 413, "body"),
    ],
)
async def test_bad_input_is_a_4xx_that_names_the_field(served, headers, body, status, param):
    served.admit(max_body_mb=1)
    error = await refused(served.complete(extra_headers=headers, extra_body=body))
    assert (error.status_code, error.body["param"]) == (status, param)
    assert error.response.headers["x-brimful-reason"] == "bad_request"


@pytest.mark.parametrize(
    "body", [b"", b"{", b'[{"priority"', b"[" * 100_000, b'"priority"', b"\xff"]
)
async def test_what_is_no_request_is_vllms_to_refuse(served: Served, body: bytes) -> None:
    async with httpx.AsyncClient() as http:
        answer = await http.post(
            f"{served.url}/v1/completions",
            content=body,
            headers={"content-type": "application/json"},
        )
    assert 400 <= answer.status_code < 500


async def test_other_paths_are_left_alone(served: Served) -> None:
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{served.url}/v1/models")).json()["data"][0]["id"] == "m"
        answer = await http.post(f"{served.url}/tokenize", json={"model": "m", "prompt": "a river"})
    assert answer.status_code == 200
    assert json.loads(answer.content)["count"] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_of_clients_that_leave_at_any_moment_nothing_is_left(served, stream):
    asked = {"model": "m", "prompt": "a river", "max_tokens": 900, "stream": stream}
    body = json.dumps(asked | {"ignore_eos": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    message = head.encode() + b"Content-Type: application/json\r\n\r\n" + body
    room, rng = asyncio.Semaphore(20), random.Random(0)
    port = int(served.url.rpartition(":")[2])
    finished = (await served.report())["finished"]

    async def one() -> None:
        async with room:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(message)
            await asyncio.sleep(rng.random() * 0.1)
            writer.transport.abort()

    await asyncio.gather(*(one() for _ in range(100)))
    await served.idle()
    assert (await served.report())["finished"] == finished  # none was computed to its end
    whole = await served.complete(2)
    assert whole.usage.completion_tokens > 0
