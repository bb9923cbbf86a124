"""Admission around vLLM's own app and engine, asked by OpenAI's own client over HTTP."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import APIStatusError

from tests.vllm.replicas.admission_app import SLOTS, Served

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]


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


async def test_who_names_no_class_gets_vllms_own_answer(served: Served) -> None:
    answer = await served.complete()
    assert answer.model_extra.get("service_tier") is None
    assert served.gate.admission.counts.let_in == {"silver": 1}


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
