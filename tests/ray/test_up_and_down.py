"""One replica, two under load, one by ``brimful apply``, none, one: our policy in Ray Serve."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.cli import main
from serve_app.demo.client import Answer, Ask, prompts, send
from serve_app.launch.local_cluster import LocalCluster
from serve_app.scaling_export import Told, read_told
from tests.ray.applications import application
from tests.ray.conftest import Deploy, base_url
from tests.ray.control import replica_actors, until
from tests.serve_configs import put

pytestmark = pytest.mark.cluster


def scaled(model_path: Path) -> dict[str, Any]:
    return application(
        "scaled",
        model_path,
        deployment={
            "autoscaling_config": {
                "min_replicas": 0,
                "initial_replicas": 1,
                "max_replicas": 2,
                "upscale_delay_s": 1,
                "downscale_delay_s": 2,
                "look_back_period_s": 2,
                "metrics_interval_s": 0.5,
            }
        },
        # A small cap makes a replica's capacity small enough for a test to pass it.
        batching={"policy": "static", "max_running": {"max": 8}},
        scaling={
            "target_utilization": 1,
            "drain_s": 5,
            "start_s": 5,
            "peak_s": 10,
            "peak_starts": 0,
        },
    )


async def test_replicas_follow_the_load_up_and_down(
    cluster: LocalCluster, deploy: Deploy, model_path: Path, tmp_path: Path
) -> None:
    app = scaled(model_path)
    deploy(app)

    def running() -> int:
        return len(replica_actors(cluster.applications(), "scaled"))

    assert running() == 1
    asks = [Ask(p, 200) for p in prompts(128, (8, 40), seed=9)]
    loading = asyncio.create_task(_keep_loaded(asks))
    await until("two replicas under load", lambda: running() == 2, tries=1200, seen=_told)
    told = _told()
    assert told and (told.deployment, told.desired) == ("BrimfulServer:tiny-scaled", 2)
    loading.cancel()
    # One has to go while it streams, whatever the policy would keep it for.
    stop, answers = asyncio.Event(), list[Answer]()
    streams = [asyncio.create_task(_stream(one, stop, answers)) for one in asks[:4]]
    scaling = ("args", "llm_configs", 0, "deployment_config", "autoscaling_config")
    fewer = tmp_path / "fewer.yaml"
    fewer.write_text(yaml.safe_dump({"applications": [put(app, (*scaling, "max_replicas"), 1)]}))
    assert (
        await asyncio.to_thread(main, ["apply", str(fewer), "--address", cluster.dashboard_url])
        == 0
    )
    await until("one replica again", lambda: len(_actors(cluster)) == 1, tries=1200, seen=_told)
    enough = len(answers) + 6
    await until("more answers of the one", lambda: len(answers) > enough)
    stop.set()
    await asyncio.gather(*streams)
    assert [a.error or a.status for a in answers if not a.whole] == []
    # The policy gives the last one up; what comes then is held until another has started.
    await until("no replica, none that drains", lambda: not _actors(cluster), 3000, _told)
    held = await send(base_url("scaled"), "tiny-scaled", asks[:1])
    assert [a.error or a.status for a in held if not a.whole] == []
    assert _actors(cluster)


def _told() -> Told | None:
    """What the policy decided of late, and why."""
    return {one.application: one for one in read_told()}.get("scaled")


def _actors(cluster: LocalCluster) -> list[Any]:
    """The model's replicas in whatever state."""
    deployments = cluster.applications()["scaled"]["deployments"]
    return [r for name, d in deployments.items() if "Server:" in name for r in d["replicas"]]


async def _stream(ask: Ask, stop: asyncio.Event, answers: list[Answer]) -> None:
    while not stop.is_set():
        answers += await send(base_url("scaled"), "tiny-scaled", [ask])


async def _keep_loaded(asks: list[Ask]) -> None:
    while True:
        answers = await send(base_url("scaled"), "tiny-scaled", asks)
        assert all(a.whole for a in answers)
