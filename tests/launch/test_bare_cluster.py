"""A cluster without our variables: Ray Serve LLM's own ingress, and ``brimful serve`` in it."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from openai import APIError, AsyncOpenAI

from serve_app.demo.client import Ask, prompts, send
from serve_app.environment import DIRECT_STREAMING, HA_PROXY, variables
from serve_app.launch.local_cluster import LocalCluster
from tests.launch.serving import BASE, PORTS, START_S, STOP_S, serving
from tests.ray.applications import application
from tests.ray.conftest import PORT, found_clusters, model_path
from tests.ray.processes import naming, none_left

__all__ = ["found_clusters", "model_path"]  # fixtures

pytestmark = pytest.mark.cluster

ALL, LATE = "sk-all-0123456789", "sk-late-0123456789"
PLAIN = f"{BASE}/plain"


def plain(model: Path, keys: Path) -> dict[str, Any]:
    """An application of two models behind keys."""
    app = application("plain", model, deployment={"num_replicas": 1}, batching={"policy": "static"})
    other = application("b", model, deployment={"num_replicas": 1}, batching={"policy": "paper"})
    other["args"]["llm_configs"][0] |= {"classes": {"gold": {"default": True}, "late": {}}}
    app["args"]["llm_configs"] += other["args"]["llm_configs"]
    app["args"]["security"] = {"keys": {"file": str(keys)}, "limits": {"max_sequences": 2}}
    app["args"]["auto_model"] = {
        "default": "tiny-plain",
        "rules": [{"model": "tiny-b", "prompt_tokens": 50}],
    }
    return app


@pytest.fixture(scope="module")
def bare(
    tmp_path_factory: pytest.TempPathFactory, found_clusters: str, model_path: Path
) -> Iterator[LocalCluster]:
    """A cluster that somebody started without our variables, with ``plain`` and the console."""
    folder = tmp_path_factory.mktemp("bare")
    keys, config = folder / "keys", folder / "serve.yaml"
    keys.write_text(f"all {ALL}\nlate {LATE} classes=late\n")
    console = {
        "name": "console",
        "route_prefix": "/console",
        "import_path": "serve_app.console:build",
        "args": {"security": {"keys": None}},
    }
    http = {"host": "127.0.0.1", "port": PORT}
    apps = [plain(model_path, keys), console]
    at = {"proxy_location": "HeadOnly", "http_options": http}
    config.write_text(yaml.safe_dump({**at, "applications": apps}))
    with none_left() as started, pytest.MonkeyPatch.context() as patch:
        # What tests of engines in this process set would overrule ``kv_cache_memory_bytes``.
        for name in (*variables(), "VLLM_CPU_KVCACHE_SPACE"):
            patch.delenv(name, raising=False)
        ours = {**PORTS, **started.environment, "VLLM_TARGET_DEVICE": "cpu"}
        made = LocalCluster(ours, folder, folder, cpus=8)
        try:
            with naming(found_clusters):
                made.wait_started()
                made.deploy(config)
                made.wait_running(START_S, print)
            yield made
        finally:
            made.stop()


async def test_the_plain_ingress_serves_two_models_of_one_application(bare: LocalCluster) -> None:
    asks = [Ask(prompt, 12) for prompt in prompts(12, (4, 30), seed=2)]
    first, second = [
        await send(f"{PLAIN}/v1", f"tiny-{name}", asks, api_key=ALL) for name in ("plain", "b")
    ]
    assert [a.error or a.status for a in first + second if not a.whole] == []
    assert [a.tokens for a in second] == [12] * 12
    assert [a.text for a in first] == [a.text for a in second]
    assert await turned_away_by_the_ingress() == [401, 401, 200, 404, 405, 403, 400]
    assert await chosen_by_the_ingress() == ["tiny-plain", "tiny-b"]
    cut = await cut_by_rays_proxy()
    assert "1 s that it has by x-request-timeout-seconds, which Ray Serve's proxy" in cut


async def chosen_by_the_ingress() -> list[str | None]:
    """Which model a short and a long request for ``auto`` went to."""
    headers = {"authorization": f"Bearer {ALL}"}
    async with httpx.AsyncClient(base_url=f"{PLAIN}/v1", timeout=60, headers=headers) as client:
        asks = [{"model": "auto", "max_tokens": 2, "prompt": "a river " * n} for n in (1, 25)]
        answers = [await client.post("/completions", json=ask) for ask in asks]
    assert [answer.status_code for answer in answers] == [200] * 2
    return [answer.headers.get("x-brimful-model") for answer in answers]


async def cut_by_rays_proxy() -> str:
    """What a stream ends with whose time, by the proxy's reading of a header, is over."""
    client = AsyncOpenAI(base_url=f"{PLAIN}/v1", api_key=ALL, max_retries=0)
    ask = {"model": "tiny-b", "prompt": "a river", "max_tokens": 480, "stream": True}
    more = {"extra_headers": {"x-request-timeout-seconds": "1"}, "extra_body": {"ignore_eos": True}}
    with pytest.raises(APIError) as ended:
        _ = [chunk async for chunk in await client.completions.create(**ask, **more)]
    return str(ended.value)


async def turned_away_by_the_ingress() -> list[int]:
    """No key, a wrong one, a right one; closed paths, methods, classes; too many answers."""
    ask = {"model": "tiny-b", "prompt": "a", "max_tokens": 1}
    late = {"authorization": f"Bearer {LATE}"}
    async with httpx.AsyncClient(base_url=PLAIN, timeout=60) as client:
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


def test_a_cluster_that_is_joined_is_told_what_it_lacks_and_left_alone(
    bare: LocalCluster, tmp_path: Path, model_path: Path
) -> None:
    flags = ("--emulate", "paper-fig3", "--port", str(PORT), "--address", bare.gcs_address)
    with serving(tmp_path / "log", str(model_path), *flags, "--max-model-len", "2048") as run:
        said = run.wait("twice: at once")
        assert f"note: {HA_PROXY}=1 is missing: " in said
        assert f"note: {DIRECT_STREAMING}=1 is missing: " in said
        assert "first token of tiny-llama" in said
        assert set(bare.applications()) == {"console", "llm", "plain"}
        second = serving(tmp_path / "second", str(model_path), *flags, "--max-model-len", "2048")
        with second as refused:
            assert refused.process.wait(START_S) == 2
            assert "application 'llm' runs in this cluster already" in refused.log.read_text()
        assert run.end(signal.SIGTERM) == 0
    assert set(bare.applications()) == {"console", "plain"}
    assert not bare.ended
    command = [sys.executable, "-m", "serve_app.cli", "stop", "--address", bare.gcs_address]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=STOP_S)
    assert re.match(
        r"removed: (plain, console|console, plain); .*\nended: batch controller \S+\n", done.stdout
    )
    assert bare.applications() == {}
