"""Two engines of one deployment that can do both: roles change under load, real KV over NIXL."""

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.metrics import PREFILLS
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.applications import application
from tests.ray.conftest import Deploy, base_url, wait_reported
from tests.ray.control import metrics_text, replicas, until

pytestmark = [pytest.mark.cluster, pytest.mark.nixl]

DRAW = random.Random(8)
PROMPTS = [[DRAW.randrange(3, 500) for _ in range(100 + 50 * i)] for i in range(6)]
SLA = {"itl_ms": 200}


def fleet(model_path: Path, prefill: int, direct: bool = False) -> dict[str, Any]:
    """An application with so many prefill engines of two, by its ``user_config``."""
    roles = {"prefill": 0, "direct": False}
    app = application(
        "roles",
        model_path,
        deployment={"num_replicas": 2},
        batching={"sla": SLA, "roles": roles},
        # On a busy machine first tokens may take longer; who is refused is not what is tested.
        admission={"longest_wait_s": "off"},
    )
    (entry,) = app["args"]["llm_configs"]
    kv = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    entry["engine_kwargs"]["kv_transfer_config"] = kv
    live = {"sla": SLA, "roles": {"prefill": prefill, "direct": direct}}
    app["deployments"] = [{"name": "MixedServer:tiny-roles", "user_config": {"batching": live}}]
    return app


async def tokens(client: httpx.AsyncClient, prompt: Any, app: str = "roles") -> list[list[int]]:
    """Token ids of the answer to a prompt, or of each of several."""
    body = {
        "model": f"tiny-{app}",
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 24,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    answer = await client.post(f"{base_url(app)}/completions", json=body)
    assert answer.status_code == 200, answer.text
    return [choice["token_ids"] for choice in answer.json()["choices"]]


def prefills(app: str = "roles") -> dict[str, float]:
    """How many prompts were prefilled, by where."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics_text()):
        for sample in family.samples:
            if sample.name == PREFILLS.exported and sample.labels["application"] == app:
                where = sample.labels["where"]
                found[where] = found.get(where, 0) + sample.value
    return found


def held_roles() -> list[str]:
    return sorted(str(one["report"].role) for one in replicas("roles").values())


async def test_roles_change_under_load_and_nothing_is_lost(
    deploy: Deploy, cluster: LocalCluster, model_path: Path
) -> None:
    await asyncio.to_thread(deploy, fleet(model_path, 0))
    await asyncio.to_thread(wait_reported, "roles", 2)
    stop = asyncio.Event()
    async with httpx.AsyncClient(timeout=120) as client:
        for one in replicas("roles").values():
            engine = one["report"].engine
            assert engine.kv_token_bytes * engine.kv_tokens == pytest.approx(32 << 20, rel=0.1)
        alone = await tokens(client, PROMPTS)  # a list is served by one engine
        assert len({tuple(one) for one in alone}) == len(PROMPTS)
        sent = 0

        async def steady(worker: int) -> None:
            nonlocal sent
            draw = random.Random(worker)
            while not stop.is_set():
                k = draw.randrange(len(PROMPTS))
                assert await tokens(client, PROMPTS[k]) == [alone[k]]
                sent += 1

        load = [asyncio.create_task(steady(k)) for k in range(6)]
        try:
            for prefill, direct in ((1, False), (0, False), (1, True)):
                before, served = prefills().get("remote", 0), sent
                await asyncio.to_thread(deploy, fleet(model_path, prefill, direct))
                wanted = ["mixed", "prefill"] if prefill else ["mixed", "mixed"]
                await until(f"roles {wanted}", lambda w=wanted: held_roles() == w, seen=held_roles)
                if prefill and not direct:
                    await until("remote", lambda b=before: prefills().get("remote", 0) > b + 20)
                    status = await asyncio.to_thread(brimful, cluster, "status", "--json")
                    # Replicas of a test before are known for some seconds after their end.
                    told = {one["role"] for one in json.loads(status)["replicas"]} - {None}
                    assert told == {"mixed", "prefill"}
                    said = await asyncio.to_thread(brimful, cluster, "explain")
                    assert "Its role is prefill" in said
                await until("more answers", lambda s=served: sent > s + 60)
                assert not any(one.done() for one in load)
        finally:
            stop.set()
            await asyncio.gather(*load)
        # Nobody holds anything for a request that is gone.
        await until("nothing held", lambda: not any(map(holding, replicas("roles").values())))


def holding(replica: dict[str, Any]) -> int:
    report = replica["report"]
    return int(report.kv_used_tokens + report.running + report.waiting)


def brimful(cluster: LocalCluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "serve_app.cli", *arguments, "--address", cluster.gcs_address]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
