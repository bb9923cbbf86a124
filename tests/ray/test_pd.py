"""Prefill and decode apart: real engines, real KV over NIXL, processes that die or leave.

Nothing fails before its first byte where another engine can serve it, and no engine holds blocks
for a request that is gone for longer than NIXL's lease.
"""

import asyncio
import contextlib
import random
import time
from typing import Any

import httpx
import psutil
import pytest

from serve_app.launch.local_cluster import LocalCluster
from tests.ray.conftest import base_url
from tests.ray.control import metrics_text, prefills, replicas, stopped, until
from tests.scrapes import APART, missing, wrong

pytestmark = [pytest.mark.cluster, pytest.mark.nixl, pytest.mark.usefixtures("apart")]

Requests = list[asyncio.Task[httpx.Response]]
FRESH_S = 2.0  # a report
DRAW = random.Random(6)
PROMPTS = [[DRAW.randrange(3, 500) for _ in range(200 + 20 * i)] for i in range(6)]


async def ready(cluster: LocalCluster) -> None:
    """Return once all three engines live, report and hold nothing; the last test ended some."""

    def whole() -> bool:
        found = len(engines(cluster, "Prefill")), len(engines(cluster, "Decode"))
        fresh = [one for one in replicas("pd").values() if one["age_s"] < FRESH_S]
        return found == (1, 2) and len(fresh) == 3 and not held("prefill") + held("decode")

    await until("three engines that hold nothing", whole, tries=1200)


async def ask(prompt: Any, *, stream: bool = False, **headers: str) -> httpx.Response:
    body = {
        "model": "tiny-pd",
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 8,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": stream,
    }
    async with httpx.AsyncClient(timeout=90) as client:
        return await client.post(f"{base_url('pd')}/completions", json=body, headers=headers)


async def repeated(answer: httpx.Response, prompt: list[int]) -> httpx.Response:
    """The answer, or that to the same once or twice more, as OpenAI's client does by itself."""
    for _ in range(2):
        if answer.status_code == 200:
            break
        await asyncio.sleep(float(answer.headers["retry-after"]))
        answer = await ask(prompt)
    return answer


def token_ids(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    found: list[int] = answer.json()["choices"][0]["token_ids"]
    return found


def actors(cluster: LocalCluster, half: str) -> list[psutil.Process]:
    """The processes of one half's replicas, which have an engine each."""
    deployment = cluster.applications()["pd"]["deployments"][f"{half}:tiny-pd"]
    running = [one for one in deployment["replicas"] if one["state"] == "RUNNING"]
    return [psutil.Process(one["pid"]) for one in running if psutil.pid_exists(one["pid"])]


def engines(cluster: LocalCluster, half: str) -> list[psutil.Process]:
    """The engine processes of one half's replicas; none of a replica whose engine is dead."""
    found = []
    for actor in actors(cluster, half):
        with contextlib.suppress(psutil.NoSuchProcess):
            children = actor.children(recursive=True)
            found += [one for one in children if "EngineCore" in " ".join(one.cmdline())]
    return found


def held(half: str) -> int:
    """KV tokens that the living engines of one half hold."""
    return sum(
        one["report"].kv_used_tokens
        for one in replicas("pd").values()
        if one["report"].group.endswith(f"-{half}") and one["age_s"] < FRESH_S
    )


async def freed(cluster: LocalCluster) -> None:
    """Wait until the living engines of each half hold nothing.

    Reports from before do not count: an engine that was stopped sent its last one before.
    """
    begin_s, found = time.monotonic(), set[str]()
    count = {half: len(engines(cluster, half.capitalize())) for half in ("prefill", "decode")}

    def empty() -> bool:
        past_s = time.monotonic() - begin_s
        for half in count.keys() - found:
            since = [
                one["report"]
                for one in replicas("pd").values()
                if one["report"].group.endswith(f"-{half}") and one["age_s"] < past_s
            ]
            holding = sum(r.kv_used_tokens + r.running + r.waiting for r in since)
            if len(since) >= count[half] and not holding:
                found.add(half)
        return len(found) == len(count)

    await until("engines that hold nothing", empty, seen=lambda: (found, held("prefill")))


async def computed(times: int = 1) -> None:
    """Return once all prompts are computed, so many times, and held for decode engines."""
    tokens = times * sum(len(prompt) for prompt in PROMPTS)
    await until(
        "prompts that are computed", lambda: held("prefill") >= tokens, seen=lambda: held("prefill")
    )


def send_all(times: int = 1) -> Requests:
    """All prompts, so many times, every second time as streams."""
    return [
        asyncio.create_task(ask(prompt, stream=bool(time % 2)))
        for time in range(times)
        for prompt in PROMPTS
    ]


async def loading(cluster: LocalCluster, times: int = 1) -> tuple[Requests, psutil.Process]:
    """Requests whose KV is on its way: the prefill engine, which is stopped, has to send it."""
    (prefill,) = engines(cluster, "Prefill")
    with stopped(engines(cluster, "Decode")):
        tasks = send_all(times)
        await computed(times)
        prefill.suspend()
    _, still = await asyncio.wait(tasks, timeout=2)
    assert len(still) == len(tasks)
    await until("loads under way", lambda: held("decode") > 0)
    return tasks, prefill


async def test_answers_are_those_of_one_engine(cluster: LocalCluster) -> None:
    await ready(cluster)
    # A list of prompts is served by the decode engine alone; stock gives each the first one's KV.
    whole = await ask(PROMPTS)
    alone = [choice["token_ids"] for choice in whole.json()["choices"]]
    assert len({tuple(one) for one in alone}) == len(PROMPTS)
    before = prefills("pd")
    assert [token_ids(one) for one in await asyncio.gather(*map(ask, PROMPTS))] == alone
    # Ray exports every few seconds.
    loaded = before.get("remote", 0) + len(PROMPTS)
    await until("six remote prefills", lambda: prefills("pd").get("remote", 0) == loaded)
    text = metrics_text()
    assert missing(text, APART) == set()
    assert wrong(text) == []
    with stopped(engines(cluster, "Prefill")):
        deadline = {"x-request-timeout-seconds": "8"}
        answers = await asyncio.gather(*(ask(prompt, **deadline) for prompt in PROMPTS))
    assert [token_ids(one) for one in answers] == alone  # which hung, and took nobody's deadline


async def test_a_prefill_engine_killed_while_it_sends_costs_no_request(
    cluster: LocalCluster,
) -> None:
    await ready(cluster)
    alone = [token_ids(await ask(prompt)) for prompt in PROMPTS]
    tasks, prefill = await loading(cluster)
    (replica,) = actors(cluster, "Prefill")
    before = prefills("pd").get("fallback", 0)
    prefill.kill()
    assert [token_ids(one) for one in await asyncio.gather(*tasks)] == alone
    await freed(cluster)
    with contextlib.suppress(psutil.NoSuchProcess):
        replica.kill()
    # Until there is another, decode engines compute prompts.
    assert [token_ids(one) for one in await asyncio.gather(*send_all(), *send_all())] == alone * 2
    await until("prompts that fell back", lambda: prefills("pd").get("fallback", 0) > before)


async def test_a_decode_engine_killed_while_it_loads_is_a_503_that_can_be_repeated(
    cluster: LocalCluster,
) -> None:
    await ready(cluster)
    alone = [token_ids(await ask(prompt)) for prompt in PROMPTS]
    tasks, prefill = await loading(cluster)
    engines(cluster, "Decode")[0].kill()
    await asyncio.sleep(1)
    prefill.resume()
    answers = await asyncio.gather(*tasks)
    for answer in answers:
        if answer.status_code != 200:
            assert answer.status_code == 503
            assert answer.headers["x-brimful-reason"] == "engine_failed"
            assert "retry-after" in answer.headers
    await freed(cluster)
    again = [await repeated(one, prompt) for one, prompt in zip(answers, PROMPTS, strict=True)]
    assert [token_ids(one) for one in again] == alone


async def test_clients_that_leave_between_the_halves_keep_no_blocks(cluster: LocalCluster) -> None:
    """While the prompt is computed, before the load begins, and while it loads."""
    await ready(cluster)
    for _ in range(3):  # engines that have not met tell each other nothing until their next step
        await asyncio.gather(*send_all())

    with stopped(engines(cluster, "Prefill")):
        tasks = send_all(times=2)
        await asyncio.sleep(1)
        await leave(tasks)
    await freed(cluster)

    with stopped(engines(cluster, "Decode")):
        tasks = send_all(times=2)
        await computed(times=2)
        await leave(tasks)
    await freed(cluster)

    tasks, prefill = await loading(cluster, times=2)
    await leave(tasks)
    prefill.resume()
    await freed(cluster)


async def leave(tasks: Requests) -> None:
    """These clients close their connections; an app that does not listen is cancelled in 1 s."""
    for one in tasks:
        one.cancel()
    await asyncio.sleep(2)
