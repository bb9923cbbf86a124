"""Prefill and decode apart on real engines, with real KV over NIXL, behind HAProxy."""

import asyncio
import random
from typing import Any

import httpx
import psutil
import pytest

from serve_app.launch.local_cluster import LocalCluster
from tests.ray.conftest import LONGEST, base_url
from tests.ray.control import metrics_text, prefills, replicas, stopped, until
from tests.scrapes import APART, missing, wrong

pytestmark = [pytest.mark.cluster, pytest.mark.nixl, pytest.mark.usefixtures("apart")]

URL, MODEL = base_url("pd"), "tiny-pd"
DRAW = random.Random(4)
PROMPTS = [[DRAW.randrange(3, 500) for _ in range(200 + 20 * i)] for i in range(6)]
LONG = [DRAW.randrange(3, 500) for _ in range(LONGEST + 88)]
NOT_A_CLIENTS = "is not allowed: it says where an engine reads KV"


async def ask(
    path: str = "/completions", headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    body = {"model": MODEL, "temperature": 0, "max_tokens": 8, "return_token_ids": True, **fields}
    async with httpx.AsyncClient(timeout=120) as client:
        return await client.post(f"{URL}{path}", json=body, headers=headers)


async def tokens(**fields: Any) -> list[list[int]]:
    """The generated tokens of each choice."""
    answer = await ask(**fields)
    assert answer.status_code == 200, answer.text
    return [choice["token_ids"] for choice in answer.json()["choices"]]


def prefill_engine(cluster: LocalCluster) -> list[psutil.Process]:
    """The prefill engine's processes."""
    deployments = cluster.applications()["pd"]["deployments"]
    (replica,) = deployments["Prefill:tiny-pd"]["replicas"]
    return psutil.Process(replica["pid"]).children(recursive=True)


async def test_answers_are_those_of_one_engine(cluster: LocalCluster) -> None:
    # A list of prompts is served by the decode engine alone; stock gives each the first one's KV.
    alone = await tokens(prompt=PROMPTS)
    assert len({tuple(one) for one in alone}) == len(PROMPTS)
    before = prefills("pd")
    remote = await asyncio.gather(*(tokens(prompt=prompt) for prompt in PROMPTS))
    assert [one for (one,) in remote] == alone
    # Ray exports every few seconds.
    loaded = before.get("remote", 0) + len(PROMPTS)
    await until("six remote prefills", lambda: prefills("pd").get("remote", 0) == loaded)
    text = metrics_text()
    assert missing(text, APART) == set()
    assert wrong(text) == []
    groups = {one["report"].group.rpartition("-")[2] for one in replicas("pd").values()}
    assert groups == {"prefill", "decode"}


async def test_what_needs_the_whole_prompt_here_is_served_by_the_decode_engine() -> None:
    (alone,) = await tokens(prompt=PROMPTS[0])
    local: list[dict[str, Any]] = [
        {"prompt_logprobs": 1},
        {"echo": True, "logprobs": 1},
        {"n": 2, "temperature": 0.7, "seed": 3},
        {"use_beam_search": True, "n": 2},
    ]
    for fields in local:
        assert (await ask(prompt=PROMPTS[0], **fields)).status_code == 200, fields
    hi = [{"role": "user", "content": "hi"}]
    assert (await ask("/chat/completions", messages=hi, echo=True)).status_code == 200
    # Seeded, what is drawn does not depend on where the prompt was prefilled.
    seeded = {"prompt": PROMPTS[0], "temperature": 0.7, "seed": 3}
    assert (await tokens(**seeded))[0] == (await tokens(**seeded, n=2))[0]
    assert (await tokens(prompt=PROMPTS[0], min_tokens=4)) == [alone]
    # The prompt's last tokens, as many as max_tokens leaves: a prefill request has more of them.
    cut = {"max_tokens": 100, "ignore_eos": True}
    last = await tokens(prompt=LONG[100 - LONGEST :], **cut)
    assert (await tokens(prompt=LONG, truncate_prompt_tokens=-1, **cut)) == last
    assert (await tokens(prompt=PROMPTS[0])) == [alone]  # no engine died of it


async def test_a_client_does_not_say_where_kv_is_read() -> None:
    told = {"do_remote_prefill": True}
    messages = [{"role": "user", "content": "hi"}]
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("/completions", {"prompt": "a", "kv_transfer_params": told}, "kv_transfer_params"),
        ("/chat/completions", {"messages": messages, "kv_transfer_params": {}}, ""),
        ("/completions", {"prompt": "a", "vllm_xargs": {"kv_transfer_params": "x"}}, "vllm_xargs."),
        # vLLM tells its engine of the request that it refuses, which ended the engine.
        ("/responses", {"input": "a", "kv_transfer_params": told}, "kv_transfer_params"),
    ]
    for path, fields, param in cases:
        answer = await ask(path, **fields)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, 400), answer.text
        assert NOT_A_CLIENTS in error["message"]
        assert error["param"].startswith(param)
    await asyncio.sleep(1)
    assert await tokens(prompt="a")


async def test_a_prefill_engine_that_hangs_takes_nobodys_deadline(cluster: LocalCluster) -> None:
    alone = await tokens(prompt=PROMPTS)
    with stopped(prefill_engine(cluster)):
        deadline = {"x-request-timeout-seconds": "8"}
        asked = (ask(prompt=prompt, headers=deadline) for prompt in PROMPTS)
        answers = await asyncio.gather(*asked)
    assert [one.status_code for one in answers] == [200] * 6, answers[0].text
    assert [one.json()["choices"][0]["token_ids"] for one in answers] == alone
