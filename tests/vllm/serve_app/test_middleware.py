"""vLLM's own server with the middleware: metrics, status and admission, without Ray."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from controller import metrics
from controller.metrics import LABELS, METRICS
from tests.scrapes import ALWAYS
from tests.vllm.emulated_app import OURS, emulated_app

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

# Twice: the second one does nothing, or Prometheus would refuse samples that come twice.
FRONTEND = {"middleware": 2 * ["serve_app.middleware.BrimfulMiddleware"], "api_key": ["secret"]}
WRONG_KEY = {"authorization": "Bearer no"}
SLOTS, MOST_WAITING = 2, 1
LONG = {"model": "m", "prompt": "a river", "max_tokens": 900, "ignore_eos": True, "stream": True}


@contextlib.asynccontextmanager
async def serving(tiny_llama: Path, scheduler: str | None) -> AsyncIterator[httpx.AsyncClient]:
    """A client with the key, of a server on a port of this machine."""
    classes = {"gold": {}, "rest": {"priority": 10, "default": True}}
    settings = {"itl_ms": 80, "classes": classes, "admission": {"max_waiting": MOST_WAITING}}
    llm, app = await emulated_app(
        tiny_llama, SLOTS, 1.0, scheduler=scheduler, frontend=FRONTEND, settings=settings
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        headers = {"authorization": "Bearer secret"}
        try:
            reach = httpx.AsyncHTTPTransport(retries=8)  # it may not listen yet
            async with httpx.AsyncClient(
                base_url=url, headers=headers, timeout=60, transport=reach
            ) as client:
                yield client
        finally:
            server.should_exit = True
            await task
            llm.shutdown()


async def samples(client: httpx.AsyncClient) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and value of every sample of ours, by the name of its metric."""
    text = (await client.get("/metrics", follow_redirects=True)).text
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "brimful" in sample.name:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def refused(client: httpx.AsyncClient) -> httpx.Response:
    """The first answer that is no stream, while more and more streams are open."""
    async with contextlib.AsyncExitStack() as streams:
        for _ in range(2 * (SLOTS + MOST_WAITING) + 1):
            made: Any = await streams.enter_async_context(asking(client))
            if made is not None:
                other = {**LONG, "service_tier": "silver"}
                closed = await client.post("/v1/completions", json=other, headers=WRONG_KEY)
                assert closed.status_code == 401  # neither the load nor the classes are told
                return made
    raise AssertionError("no request was refused")


@contextlib.asynccontextmanager
async def asking(client: httpx.AsyncClient) -> AsyncIterator[httpx.Response | None]:
    """A stream that is open, or waits, for an ``async with`` block; or its refusal."""
    request = client.build_request("POST", "/v1/completions", json=LONG)
    task = asyncio.create_task(client.send(request, stream=True))
    done, _ = await asyncio.wait({task}, timeout=1)
    answer = task.result() if done else None
    yield answer if answer is not None and answer.status_code != 200 else None
    task.cancel()
    if answer is not None:
        await answer.aclose()


async def test_metrics_status_and_a_bound_on_the_wait(tiny_llama: Path) -> None:
    async with serving(tiny_llama, OURS) as client:
        for page in ("status", "explain"):
            closed = await client.get(f"/brimful/{page}", headers=WRONG_KEY)
            assert closed.status_code == 401
        unknown = await client.post("/v1/completions", json={**LONG, "service_tier": "silver"})
        assert (unknown.status_code, "known: gold, rest" in unknown.text) == (400, True)
        answer = await refused(client)
        assert (answer.status_code, answer.headers["x-brimful-reason"]) == (429, "queue_full")
        assert float(answer.headers["retry-after"]) > 0
        # The server tells nobody of its next report.
        while metrics.REFUSED.name not in (found := await samples(client)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        (status,) = (await client.get("/brimful/status")).json()["replicas"]
        (explained,) = (await client.get("/brimful/explain")).json()["replicas"]
    assert status["control"] == explained["control"] == "on"
    assert status["max_running"] <= SLOTS
    assert explained["facts"]
    known = {one.name: one for one in METRICS if one.by == "replica"}
    for name, told in found.items():
        assert len({str(labels) for labels, _ in told}) == len(told)
        for labels, _ in told:
            assert labels.keys() == {*LABELS["replica"], *known[name].labels}
            assert (labels["application"], labels["deployment"]) == ("vllm", "m")
    without = {metrics.CONTROLLER_AGE, metrics.DOOR, metrics.CAPACITY}  # no request has ended
    here = {one.name for one in ALWAYS - without if one.by == "replica"}
    assert here - found.keys() == set()
    assert [value for labels, value in found["brimful_control_mode"] if value] == [1.0]


async def test_before_a_scheduler_of_vllms_own_it_does_nothing(tiny_llama: Path) -> None:
    async with serving(tiny_llama, None) as client:
        short = {**LONG, "max_tokens": 3, "stream": False}
        assert (await client.post("/v1/completions", json=short)).status_code == 200
        assert (await client.get("/brimful/status")).status_code == 404
        assert await samples(client) == {}
