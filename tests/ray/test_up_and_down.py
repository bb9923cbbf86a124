"""One replica, two under load, one again, none, one: our policy in Ray Serve's autoscaler."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serve_app.autoscaling_block import AUTOSCALING_POLICY
from serve_app.demo.client import Answer, Ask, prompts, send
from serve_app.launch.local_cluster import LocalCluster
from serve_app.scaling_export import Told, read_told
from tests.ray.applications import application
from tests.ray.conftest import Deploy, base_url
from tests.ray.control import replica_actors, until

pytestmark = pytest.mark.cluster
# What the scaling block has no keys for: a test cannot wait for minutes of a past.
SOON = {"target_utilization": 1, "drain_s": 5, "start_s": 5, "peak_s": 10, "peak_starts": 0}


async def test_replicas_follow_the_load_up_and_down(
    cluster: LocalCluster, deploy: Deploy, model_path: Path
) -> None:
    deploy(
        application(
            "scaled",
            model_path,
            deployment={
                "autoscaling_config": {
                    "min_replicas": 0,
                    "initial_replicas": 1,
                    "max_replicas": 2,
                    "upscale_delay_s": 1,
                    "downscale_delay_s": 5,
                    "look_back_period_s": 5,
                    "metrics_interval_s": 1,
                    "policy": {"policy_function": AUTOSCALING_POLICY, "policy_kwargs": SOON},
                }
            },
            # A small cap makes a replica's capacity small enough for a test to pass it.
            batching={"policy": "static", "max_running": {"max": 8}},
        )
    )

    def running() -> int:
        return len(replica_actors(cluster.applications(), "scaled"))

    assert running() == 1
    asks = [Ask(p, 200) for p in prompts(128, (8, 40), seed=9)]
    loading = asyncio.create_task(_keep_loaded(asks))
    await until("two replicas under load", lambda: running() == 2, tries=1200, seen=_told)
    told = _told()
    assert told and (told.deployment, told.desired) == ("BrimfulServer:tiny-scaled", 2)
    loading.cancel()
    # A good part of one replica's load, and always something under way: on both, until one goes.
    stop, answers = asyncio.Event(), list[Answer]()
    streams = [asyncio.create_task(_stream(one, stop, answers)) for one in asks[:2]]
    # What came is provided for during three starts more, and a start lasts what it lasts here.
    await until("one replica again", lambda: running() == 1, tries=3000, seen=_told)
    stop.set()
    await asyncio.gather(*streams)
    assert len(answers) > 6
    assert [a.error or a.status for a in answers if not a.whole] == []
    await until("no replica, none that drains", lambda: not _actors(cluster), 3000, _told)
    held = await send(base_url("scaled"), "tiny-scaled", asks[:1])  # while a replica starts
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
