"""Admission around vLLM's own app and engine, asked by OpenAI's own client over HTTP."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, BadRequestError

from tests.vllm.replicas.replica_app import SLOTS, Replica, leave, serving

pytestmark = [pytest.mark.engine, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
async def made(tiny_llama: Path) -> AsyncIterator[Replica]:
    async with serving(tiny_llama) as replica:
        yield replica


@pytest.fixture
async def served(made: Replica) -> AsyncIterator[Replica]:
    made.admit()
    yield made
    await made.idle()


async def test_classes_are_served_in_their_order(served: Replica) -> None:
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


async def test_several_prompts_of_one_request_are_let_in_or_none(served: Replica) -> None:
    served.admit(max_waiting=1, shed_at=1.0)
    tasks = await served.busy(SLOTS)
    with pytest.raises(APIStatusError) as full:
        await served.complete(prompt=["a", "b", "c"])
    assert full.value.status_code == 429
    assert served.inside() == SLOTS
    await leave(tasks)
    assert len((await served.complete(prompt=["a", "b"])).choices) == 2


async def test_several_answers_to_a_prompt_start_once_and_one_name_is_not_one_request(served):
    assert len((await served.complete(n=3)).choices) == 3
    assert sum(served.gate.admission.counts.started.values()) == 1
    tasks = await served.busy(SLOTS - 1)
    name = {"x-request-id": "one trace"}
    begun = asyncio.create_task(served.complete(900, extra_headers=name))
    await served.until(lambda: served.gate.admission.waiting.running == SLOTS)
    late = name | {"x-request-timeout-seconds": "0.2"}
    with pytest.raises(APIStatusError) as waited:
        await served.complete(extra_headers=late)
    assert waited.value.response.headers["x-brimful-reason"] in ("deadline", "queue_timeout")
    assert served.inside() == SLOTS  # whose first token has come waits for no timeout
    await leave([begun, *tasks])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_grammar_that_allows_nothing_is_a_400(served: Replica, stream: bool) -> None:
    nothing = {"structured_outputs": {"grammar": "root ::= root"}}
    asked: Any = {"model": "m", "max_tokens": 4, "stream": stream, "extra_body": nothing}
    messages: Any = [{"role": "user", "content": "a river"}]
    for call in (
        served.client.completions.create(prompt="a river", **asked),
        served.client.chat.completions.create(messages=messages, n=2, **asked),
    ):
        with pytest.raises(BadRequestError, match="structured output: the grammar allows no token"):
            await call
    assert (await served.complete(4)).usage.completion_tokens == 4


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
    assert (await served.complete(2)).usage.completion_tokens > 0
