"""A fleet with roles goes from one engine to three and back: real KV over NIXL, nothing lost."""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.launch.local_cluster import LocalCluster
from tests.ray.applications import application
from tests.ray.conftest import Deploy, wait_reported
from tests.ray.control import replicas, until
from tests.ray.test_live_roles import PROMPTS, holding, prefills, tokens

# Four engines start, one after another; each takes minutes where others use the machine.
pytestmark = [pytest.mark.cluster, pytest.mark.nixl, pytest.mark.timeout(2400)]

APP = "rolescale"
SLA = {"itl_ms": 1000}  # in reach of any machine: where it is not, nothing is scaled


def fleet(model_path: Path, prefill: int | str) -> dict[str, Any]:
    app = application(
        APP,
        model_path,
        deployment={
            "autoscaling_config": {
                "min_replicas": 1,
                "max_replicas": 3,
                "upscale_delay_s": 1,
                "downscale_delay_s": 5,
                "look_back_period_s": 5,
                "metrics_interval_s": 1,
            }
        },
        # So few run together that a queue gets deep, whatever the machine makes of them.
        batching={"sla": SLA, "roles": {"prefill": 1, "direct": False}, "max_running": {"max": 4}},
        admission={"longest_wait_s": "off"},
        scaling={"queue_factor": 1, "queue_for_s": 3, "start_s": 5, "peak_s": 10, "peak_starts": 0},
    )
    (entry,) = app["args"]["llm_configs"]
    kv = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    entry["engine_kwargs"]["kv_transfer_config"] = kv
    live = {**entry["batching"], "roles": {"prefill": prefill, "direct": False}}
    app["deployments"] = [{"name": f"MixedServer:tiny-{APP}", "user_config": {"batching": live}}]
    return app


def roles() -> list[str]:
    """The roles of the replicas that stay."""
    reports = (one["report"] for one in replicas(APP).values())
    return sorted(str(one.role) for one in reports if not one.leaving)


async def test_one_engine_becomes_three_and_one_again_and_no_request_is_lost(
    deploy: Deploy, cluster: LocalCluster, model_path: Path
) -> None:
    await asyncio.to_thread(deploy, fleet(model_path, 1))
    await asyncio.to_thread(wait_reported, APP, 1)
    await until("one engine is mixed", lambda: roles() == ["mixed"])
    many, stop, sent = asyncio.Event(), asyncio.Event(), 0
    many.set()
    async with httpx.AsyncClient(timeout=600) as client:
        alone = [(await tokens(client, one, APP))[0] for one in PROMPTS]

        async def steady(worker: int) -> None:
            nonlocal sent
            draw = random.Random(worker)
            while not stop.is_set() and (many.is_set() or worker == 0):
                k = draw.randrange(len(PROMPTS))
                assert await tokens(client, PROMPTS[k], APP) == [alone[k]]
                sent += 1
                if not many.is_set():  # less than one engine carries, whatever the machine
                    await asyncio.sleep(10)

        load = [asyncio.create_task(steady(k)) for k in range(40)]
        try:
            three = ["mixed", "mixed", "prefill"]
            await until("three engines", lambda: roles() == three, tries=3000, seen=roles)
            before = prefills(APP).get("remote", 0)
            await until("prompts go through", lambda: prefills(APP).get("remote", 0) > before + 20)
            # How many then compute prompts is the controller's to say; one decodes at any rate.
            await asyncio.to_thread(deploy, fleet(model_path, "auto"))
            served = sent
            await until("more answers", lambda: sent > served + 60)
            assert len(roles()) == 3 and "mixed" in roles()
            await asyncio.to_thread(deploy, fleet(model_path, 1))
            many.clear()
            await until("one engine", lambda: roles() == ["mixed"], tries=4500, seen=roles)
            served = sent
            await until("answers of the one", lambda: sent > served + 1)
            assert not any(one.done() and one.exception() for one in load)
        finally:
            stop.set()
            await asyncio.gather(*load)
        await until("nothing held", lambda: not any(map(holding, replicas(APP).values())))
