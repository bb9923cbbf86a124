"""A fleet with roles: one engine becomes two, roles change under load, and one again; NIXL's KV."""

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.scaling_export import Told, read_told
from tests.ray.applications import application, scaled_soon
from tests.ray.conftest import Deploy, base_url, wait_reported
from tests.ray.control import prefills, replicas, until

# Engines start one after another; each takes minutes where others use the machine.
pytestmark = [pytest.mark.cluster, pytest.mark.nixl]

APP, SERVER = "roles", "MixedServer:tiny-roles"
DRAW = random.Random(8)
PROMPTS = [[DRAW.randrange(3, 500) for _ in range(100 + 50 * i)] for i in range(6)]
SLA = {"itl_ms": 1000}  # in reach of any machine: if it is not, nothing is scaled


def fleet(model_path: Path, prefill: int | str, direct: bool = False) -> dict[str, Any]:
    """An application with so many prefill engines of two, by its ``user_config``."""
    app = application(
        APP,
        model_path,
        deployment={
            "autoscaling_config": {
                "min_replicas": 1,
                "max_replicas": 2,
                "upscale_delay_s": 1,
                "downscale_delay_s": 2,
                "look_back_period_s": 2,
                "metrics_interval_s": 0.5,
                "policy": scaled_soon(queue_factor=1, queue_for_s=3),
            }
        },
        # So few run together that a queue gets deep, whatever the machine makes of them.
        batching={"sla": SLA, "roles": {"prefill": 1, "direct": False}, "max_running": {"max": 4}},
        # On a busy machine first tokens may take longer; who is refused is not what is tested.
        admission={"longest_wait_s": "off"},
    )
    (entry,) = app["args"]["llm_configs"]
    kv = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    entry["engine_kwargs"]["kv_transfer_config"] = kv
    live = {**entry["batching"], "roles": {"prefill": prefill, "direct": direct}}
    app["deployments"] = [{"name": SERVER, "user_config": {"batching": live}}]
    return app


async def tokens(client: httpx.AsyncClient, prompt: Any) -> list[list[int]]:
    """Token ids of the answer to a prompt, or of each of several."""
    body = {
        "model": f"tiny-{APP}",
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 24,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    answer = await client.post(f"{base_url(APP)}/completions", json=body)
    assert answer.status_code == 200, answer.text
    return [choice["token_ids"] for choice in answer.json()["choices"]]


def told() -> Told | None:
    """What the policy decided of late, and why."""
    return {one.application: one for one in read_told()}.get(APP)


def roles() -> list[str]:
    """The roles of the replicas that stay."""
    reports = (one["report"] for one in replicas(APP).values())
    return sorted(str(one.role) for one in reports if not one.leaving)


def seen() -> tuple[list[str], Told | None]:
    return roles(), told()


async def test_one_engine_becomes_two_whose_roles_change_and_one_again_and_nothing_is_lost(
    deploy: Deploy, model_path: Path
) -> None:
    await asyncio.to_thread(deploy, fleet(model_path, 1))
    await asyncio.to_thread(wait_reported, APP, 1)
    await until("one engine is mixed", lambda: roles() == ["mixed"])
    many, stop, sent = asyncio.Event(), asyncio.Event(), 0
    many.set()
    async with httpx.AsyncClient(timeout=600) as client:
        alone = await tokens(client, PROMPTS)
        assert len({tuple(one) for one in alone}) == len(PROMPTS)

        async def steady(worker: int) -> None:
            nonlocal sent
            draw = random.Random(worker)
            while not stop.is_set() and (many.is_set() or worker == 0):
                k = draw.randrange(len(PROMPTS))
                assert await tokens(client, PROMPTS[k]) == [alone[k]]
                sent += 1
                if not many.is_set():  # less than one engine carries, whatever the machine
                    await asyncio.sleep(5)

        async def served(count: int) -> None:
            before = sent
            await until(f"{count} more answers", lambda: sent > before + count)
            assert not any(one.done() and one.exception() for one in load)

        async def have(prefill: int | str, direct: bool = False) -> None:
            await asyncio.to_thread(deploy, fleet(model_path, prefill, direct))
            if prefill != "auto":
                wanted = ["mixed", "prefill" if prefill else "mixed"]
                await until(f"roles {wanted}", lambda: roles() == wanted, seen=roles)

        load = [asyncio.create_task(steady(k)) for k in range(40)]
        try:
            two = ["mixed", "prefill"]
            await until("two engines", lambda: roles() == two, tries=3000, seen=seen)
            before = prefills(APP).get("remote", 0)
            await until("prompts go through", lambda: prefills(APP).get("remote", 0) > before + 20)
            for prefill, direct in ((0, False), (1, True)):
                await have(prefill, direct)
                await served(60)
            # How many then compute prompts is the controller's to say; one decodes at any rate.
            await have("auto")
            await served(60)
            assert len(roles()) == 2 and "mixed" in roles()
            await have(1)
            many.clear()
            await until("one engine", lambda: roles() == ["mixed"], tries=3000, seen=seen)
            await served(1)
        finally:
            stop.set()
            await asyncio.gather(*load)
        # Nobody holds anything for a request that is gone.
        await until("nothing held", lambda: not any(map(holding, replicas(APP).values())))


def holding(replica: dict[str, Any]) -> int:
    report = replica["report"]
    return int(report.kv_used_tokens + report.running + report.waiting)
