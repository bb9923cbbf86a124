"""Without direct streaming: Ray Serve LLM's own ingress in front of the same replicas."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from openai import APIError, APIStatusError, AsyncOpenAI

from serve_app.demo.client import Ask, prompts, send
from serve_app.demo.tiny_model import make_tiny_model
from serve_app.launch.local_cluster import local_cluster
from tests.ray.applications import application
from tests.ray.collector import ENV as SPANS_BY_HTTP
from tests.ray.collector import Collector, collecting
from tests.ray.conftest import DEPLOY_TIMEOUT_S, PORT, REPO, found_clusters
from tests.ray.processes import naming, none_left

__all__ = ["found_clusters"]  # a fixture

pytestmark = pytest.mark.cluster

ALL, LATE = "sk-all-0123456789", "sk-late-0123456789"
PLAIN = {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "0"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


async def test_the_plain_ingress_serves_two_models_of_one_application(
    tmp_path: Path, collector: Collector, found_clusters: str
) -> None:
    model = make_tiny_model(REPO / ".cache" / "tiny-llama")
    both = application("a", model, deployment={"num_replicas": 1}, batching={"policy": "static"})
    other = application("b", model, deployment={"num_replicas": 1}, batching={"policy": "paper"})
    other["args"]["llm_configs"][0] |= {
        "classes": {"gold": {"default": True}, "late": {"ttft_ms": 1e6, "queue_timeout_s": 1e-6}}
    }
    other["args"]["llm_configs"][0]["runtime_env"]["env_vars"] |= SPANS_BY_HTTP
    other["args"]["llm_configs"][0]["engine_kwargs"]["otlp_traces_endpoint"] = collector.endpoint
    both["args"]["llm_configs"] += other["args"]["llm_configs"]
    both["route_prefix"] = "/"
    keys = tmp_path / "keys"
    keys.write_text(f"all {ALL}\nlate {LATE} classes=late\n")
    both["args"]["security"] = {"keys": {"file": str(keys)}, "limits": {"max_n": 2}}
    both["args"]["auto_model"] = {
        "default": "tiny-a",
        "rules": [
            {"model": "tiny-b", "prompt_tokens": 50},
            {"model": "tiny-b", "tools": True},
            {"model": "tiny-b", "headers": {"x-try": "idle"}, "idle_frac": 1.0},
        ],
    }
    config = {"http_options": {"host": "127.0.0.1", "port": PORT}, "applications": [both]}
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(config))
    asks = [Ask(prompt, 12) for prompt in prompts(12, (4, 30), seed=2)]
    with (
        naming(found_clusters),
        none_left() as started,
        local_cluster(
            PLAIN | started.environment, directory=REPO, logs=tmp_path, cpus=6
        ) as cluster,
    ):
        cluster.deploy(path)
        cluster.wait_running(DEPLOY_TIMEOUT_S, print)
        answers = {
            name: await send(f"http://127.0.0.1:{PORT}/v1", f"tiny-{name}", asks, api_key=ALL)
            for name in "ab"
        }
        refusals = await classes_through_the_ingress()
        turned_away = await turned_away_by_the_ingress()
        malformed = await malformed_at_the_ingress()
        chosen = await chosen_by_the_ingress()
        cut = await cut_by_rays_proxy()
        await one_trace(collector)
    assert [a.error or a.status for a in answers["a"] + answers["b"] if not a.whole] == []
    assert [a.tokens for a in answers["b"]] == [12] * 12
    assert [a.text for a in answers["a"]] == [a.text for a in answers["b"]]
    assert refusals == ["gold", "gold", 400, 400, 503, 503]
    assert turned_away == [401, 401, 200, 404, 405, 403, 400]
    assert "1 s that it has by x-request-timeout-seconds, which Ray Serve's proxy" in cut
    assert chosen == ["tiny-a", "tiny-b", "tiny-a", "tiny-b"]
    assert malformed == ["prompt", "messages", "content-type", "content-type", "messages", "body"]


async def chosen_by_the_ingress() -> list[str | None]:
    """Which model each request for ``auto`` went to, plain, streamed, chat; what may be asked."""
    root, key = f"http://127.0.0.1:{PORT}/v1", {"authorization": f"Bearer {ALL}"}
    ask = {"model": "auto", "max_tokens": 2}
    async with httpx.AsyncClient(base_url=root, timeout=60, headers=key) as client:
        listed = {one["id"] for one in (await client.get("/models")).json()["data"]}
        answers = [
            await client.post("/completions", json={**ask, "prompt": "a river"}),
            await client.post("/completions", json={**ask, "prompt": "a river " * 25}),
            await client.post("/completions", json={**ask, "prompt": "a", "stream": True}),
            await client.post("/completions", json={**ask, "prompt": [5] * 60}),
        ]
        while (await idle_one(client)) != "tiny-b":  # noqa: ASYNC110 - once both are at rest
            await asyncio.sleep(0.5)
    assert listed == {"auto", "tiny-a", "tiny-b"}
    assert [answer.status_code for answer in answers] == [200] * 4
    assert answers[1].json()["model"] == "tiny-b"
    return [answer.headers.get("x-brimful-model") for answer in answers]


async def idle_one(client: httpx.AsyncClient) -> str:
    """The model of a request that may go to tiny-b if nothing runs there."""
    ask = {"model": "auto", "max_tokens": 2, "prompt": "a"}
    answer = await client.post("/completions", json=ask, headers={"x-try": "idle"})
    return answer.headers["x-brimful-model"]


async def cut_by_rays_proxy() -> str:
    """What a stream ends with whose time, by the proxy's reading of a header, is over."""
    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=ALL, max_retries=0)
    ask = {"model": "tiny-b", "prompt": "a river", "max_tokens": 480, "stream": True}
    more = {"extra_headers": {"x-request-timeout-seconds": "1"}, "extra_body": {"ignore_eos": True}}
    with pytest.raises(APIError) as ended:
        _ = [chunk async for chunk in await client.completions.create(**ask, **more)]
    return str(ended.value)


async def one_trace(collector: Collector) -> None:
    """From the client's header, through the ingress, to vLLM's span."""
    trace, clients = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = {"traceparent": f"00-{trace}-{clients}-01"}
    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=ALL, max_retries=0)
    ask = {"model": "tiny-b", "prompt": "a river", "max_tokens": 2}
    await client.completions.create(**ask, extra_headers=headers)
    while len(collector.of(trace)) < 2:  # noqa: ASYNC110 - the test's own time limit ends it
        await asyncio.sleep(0.1)
    spans = collector.of(trace)
    ours, vllms = spans["brimful.request"], spans["llm_request"]
    assert (ours.parent, vllms.parent) == (clients, ours.id)
    assert (ours.attributes["brimful.class"], ours.attributes["brimful.admitted"]) == ("gold", True)


async def turned_away_by_the_ingress() -> list[int]:
    """No key, a wrong one, a right one; closed paths, methods, classes; too many answers."""
    root = f"http://127.0.0.1:{PORT}"
    ask = {"model": "tiny-b", "prompt": "a", "max_tokens": 1}
    late = {"authorization": f"Bearer {LATE}"}
    async with httpx.AsyncClient(base_url=root, timeout=60) as client:
        answers = [
            await client.get("/v1/models"),
            await client.get("/v1/models", headers={"authorization": f"Bearer {ALL}x"}),
            await client.get("/v1/models", headers=late),
            await client.post("/tokenize", headers=late, json=ask),
            await client.put("/v1/completions", headers=late, json=ask),
            await client.post(
                "/v1/completions", headers=late, json={**ask, "service_tier": "gold"}
            ),
            await client.post("/v1/completions", headers=late, json={**ask, "n": 3}),
        ]
    for answer in answers[3:] + answers[:2]:
        assert answer.json()["error"]["code"] == answer.status_code
    return [answer.status_code for answer in answers]


async def malformed_at_the_ingress() -> list[Any]:
    """Which field the 400 to each names; nothing of the cluster is in it."""
    json = "application/json"
    asks = [
        ("completions", json, b'{"model":"tiny-b","prompt":"\\ud800 x","max_tokens":2}'),
        ("chat/completions", json, b'{"messages":[{"role":"user","content":"\\ud800"}]}'),
        ("completions", "text/plain", b'{"model":"tiny-b","prompt":"a"}'),
        ("completions", None, b'{"model":"tiny-b","prompt":"a"}'),
        ("chat/completions", json, b'{"model":"tiny-b"}'),
        ("completions", json, b"{"),
    ]
    named: list[Any] = []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=60) as client:
        assert (await client.get("/health")).status_code == 200
        for path, kind, body in asks:
            headers = {"authorization": f"Bearer {ALL}"} | ({"content-type": kind} if kind else {})
            answer = await client.post(f"/v1/{path}", content=body, headers=headers)
            assert answer.status_code == 400, answer.text
            assert not [word for word in ("pid=", "ip=", "/home/", "actor") if word in answer.text]
            named.append(answer.json()["error"]["param"])
        unknown = {"model": "nope", "prompt": "a"}
        key = {"authorization": f"Bearer {ALL}"}
        answer = await client.post("/v1/completions", json=unknown, headers=key)
        assert answer.json()["error"]["code"] == answer.status_code == 404
    return named


async def classes_through_the_ingress() -> list[Any]:
    """What OpenAI's client makes of classes, unknown ones and late ones, streamed and not."""
    found: list[Any] = []
    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=ALL, max_retries=0)
    for tier in ("gold", "platinum", "late"):
        for stream in (False, True):
            try:
                answer = await client.chat.completions.create(
                    model="tiny-b",
                    messages=[{"role": "user", "content": "a river"}],
                    max_tokens=2,
                    stream=stream,
                    service_tier=tier,
                )
                first = await anext(aiter(answer)) if stream else answer
                found.append(first.service_tier)
            except APIStatusError as error:
                found.append(error.status_code)
                if error.status_code == 503:
                    assert float(error.response.headers["retry-after-ms"]) >= 500
                    assert error.response.headers["x-brimful-reason"] == "queue_timeout"
    return found
