"""A stock OpenAI client's batches, beside online requests, through the whole stack."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAIError

from serve_app.demo.client import Ask, send
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.conftest import PORT, base_url
from tests.ray.control import (
    engine_process,
    metrics_text,
    replica_actors,
    replicas,
    snapshot,
    until,
)
from tests.scrapes import BATCHES, missing, wrong

pytestmark = pytest.mark.cluster

REQUESTS = 60


@pytest.fixture
async def client(emulated: None) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{PORT}/batches/v1", api_key="none") as made:
        yield made


def input_file() -> BytesIO:
    """Requests, one of them malformed and one refused by the engine."""
    body = {"model": "tiny-batched", "prompt": [5] * 20, "ignore_eos": True}
    asked = {"method": "POST", "url": "/v1/completions"}
    lines = [
        json.dumps({**asked, "custom_id": f"r{n}", "body": {**body, "max_tokens": tokens}})
        for n, tokens in enumerate([40] * 7 + [-1] + [40] * (REQUESTS - 8))
    ]
    return BytesIO("\n".join([*lines[:30], "{oh", *lines[30:]]).encode())


def kill_batches_replica(cluster: LocalCluster) -> None:
    """End its process, as if the node had lost its power."""
    deployments = cluster.applications()["batches"]["deployments"]
    (pid,) = (one["pid"] for each in deployments.values() for one in each["replicas"])
    os.kill(pid, signal.SIGKILL)


async def until_ended(client: AsyncOpenAI, batch_id: str) -> Any:
    """The batch, once it has ended; the application may be away meanwhile."""
    while True:
        await asyncio.sleep(0.5)
        try:
            told = await client.batches.retrieve(batch_id)
        except OpenAIError:
            continue
        if told.status in ("completed", "failed", "expired", "cancelled"):
            return told


@pytest.mark.timeout(400)
async def test_a_batch_goes_on_after_its_process_was_killed(
    client: AsyncOpenAI, cluster: LocalCluster
) -> None:
    file = await client.files.create(file=("in.jsonl", input_file()), purpose="batch")
    batch = await client.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
    )
    while True:
        now = await client.batches.retrieve(batch.id)
        assert now.request_counts is not None
        if now.request_counts.completed >= 5:
            break
        await asyncio.sleep(0.1)
    assert now.status == "in_progress"
    online = asyncio.create_task(send(base_url("batched"), "tiny-batched", [Ask([5] * 9, 8)] * 4))
    kill_batches_replica(cluster)
    ended = await until_ended(client, batch.id)
    assert [answer.whole for answer in await online] == [True] * 4
    assert ended.status == "completed"
    counts = ended.request_counts
    assert (counts.total, counts.completed, counts.failed) == (REQUESTS + 1, REQUESTS - 1, 2)
    out = await lines_of(client, ended.output_file_id)
    assert [line["custom_id"] for line in out] == [f"r{n}" for n in range(REQUESTS) if n != 7]
    assert {line["response"]["body"]["usage"]["completion_tokens"] for line in out} == {40}
    assert {line["response"]["body"].get("service_tier") for line in out} == {"late"}
    errors = await lines_of(client, ended.error_file_id)
    assert [line["custom_id"] for line in errors] == ["r7", None]
    await until(f"metrics {BATCHES}", lambda: not missing(metrics_text(), BATCHES))
    assert wrong(metrics_text()) == []


async def test_lines_of_an_engine_that_dies_go_on_in_another(
    client: AsyncOpenAI, cluster: LocalCluster
) -> None:
    body = {"model": "tiny-batched", "prompt": [5] * 20, "ignore_eos": True, "max_tokens": 200}
    asked = {"method": "POST", "url": "/v1/completions", "body": body}
    lines = "\n".join(json.dumps({**asked, "custom_id": f"r{n}"}) for n in range(20))
    file = await client.files.create(file=("in.jsonl", BytesIO(lines.encode())), purpose="batch")
    batch = await client.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
    )

    def runs_lines() -> str | None:
        return next((i for i, r in replicas("batched").items() if r["report"].running >= 2), None)

    await until("a replica with lines of the batch", lambda: runs_lines() is not None)
    victim = runs_lines()
    assert victim is not None
    pids = {i: a["pid"] for i, a in replica_actors(cluster.applications(), "batched").items()}
    engine_process(next(pid for i, pid in pids.items() if victim in i)).kill()
    ended = await until_ended(client, batch.id)
    assert (ended.status, ended.request_counts.completed) == ("completed", 20)
    out = await lines_of(client, ended.output_file_id)
    assert {line["response"]["body"]["usage"]["completion_tokens"] for line in out} == {200}
    (died,) = (one for one in snapshot()["deaths"] if victim in one["replica"])
    assert died["outcomes"]["moved"] >= 2
    assert died["outcomes"].keys() <= {"moved", "moving"}


async def lines_of(client: AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    text = (await client.files.content(file_id)).text
    return [json.loads(line) for line in text.splitlines()]
