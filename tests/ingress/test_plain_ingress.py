"""Without direct streaming: Ray Serve LLM's own ingress in front of the same replicas."""

from pathlib import Path

import httpx
import pytest
import yaml
from openai import APIError, AsyncOpenAI

from serve_app.demo.client import Ask, prompts, send
from serve_app.demo.tiny_model import make_tiny_model
from serve_app.launch.local_cluster import local_cluster
from tests.ray.applications import application
from tests.ray.conftest import DEPLOY_TIMEOUT_S, PORT, REPO, found_clusters
from tests.ray.processes import naming, none_left

__all__ = ["found_clusters"]  # a fixture

pytestmark = pytest.mark.cluster

ALL, LATE = "sk-all-0123456789", "sk-late-0123456789"
PLAIN = {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING": "0"}


async def test_the_plain_ingress_serves_two_models_of_one_application(
    tmp_path: Path, found_clusters: str
) -> None:
    model = make_tiny_model(REPO / ".cache" / "tiny-llama")
    both = application("a", model, deployment={"num_replicas": 1}, batching={"policy": "static"})
    other = application("b", model, deployment={"num_replicas": 1}, batching={"policy": "paper"})
    other["args"]["llm_configs"][0] |= {"classes": {"gold": {"default": True}, "late": {}}}
    both["args"]["llm_configs"] += other["args"]["llm_configs"]
    both["route_prefix"] = "/"
    keys = tmp_path / "keys"
    keys.write_text(f"all {ALL}\nlate {LATE} classes=late\n")
    both["args"]["security"] = {"keys": {"file": str(keys)}, "limits": {"max_sequences": 2}}
    both["args"]["auto_model"] = {
        "default": "tiny-a",
        "rules": [
            {"model": "tiny-b", "prompt_tokens": 50},
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
        turned_away = await turned_away_by_the_ingress()
        chosen = await chosen_by_the_ingress()
        cut = await cut_by_rays_proxy()
    assert [a.error or a.status for a in answers["a"] + answers["b"] if not a.whole] == []
    assert [a.tokens for a in answers["b"]] == [12] * 12
    assert [a.text for a in answers["a"]] == [a.text for a in answers["b"]]
    assert turned_away == [401, 401, 200, 404, 405, 403, 400]
    assert "1 s that it has by x-request-timeout-seconds, which Ray Serve's proxy" in cut
    assert chosen == ["tiny-a", "tiny-b"]


async def chosen_by_the_ingress() -> list[str | None]:
    """Which model a short and a long request for ``auto`` went to."""
    root, key = f"http://127.0.0.1:{PORT}/v1", {"authorization": f"Bearer {ALL}"}
    async with httpx.AsyncClient(base_url=root, timeout=60, headers=key) as client:
        asks = [{"model": "auto", "max_tokens": 2, "prompt": "a river " * n} for n in (1, 25)]
        answers = [await client.post("/completions", json=ask) for ask in asks]
    assert [answer.status_code for answer in answers] == [200] * 2
    return [answer.headers.get("x-brimful-model") for answer in answers]


async def cut_by_rays_proxy() -> str:
    """What a stream ends with whose time, by the proxy's reading of a header, is over."""
    client = AsyncOpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key=ALL, max_retries=0)
    ask = {"model": "tiny-b", "prompt": "a river", "max_tokens": 480, "stream": True}
    more = {"extra_headers": {"x-request-timeout-seconds": "1"}, "extra_body": {"ignore_eos": True}}
    with pytest.raises(APIError) as ended:
        _ = [chunk async for chunk in await client.completions.create(**ask, **more)]
    return str(ended.value)


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
