"""What breaks, and what must not break with it."""

import asyncio
import subprocess
import sys

import pytest
import ray

from controller.fleet.actor import find_controller
from serve_app.demo.client import Ask, prompts, send
from serve_app.launch.local_cluster import LocalCluster
from tests.ray.conftest import base_url
from tests.ray.control import engine_process, replica_actors, replicas, snapshot, until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("two_apps")]


def load(n: int, per_s: float) -> list[Ask]:
    return [Ask(p, 40, at_s=i / per_s) for i, p in enumerate(prompts(n, (8, 40), seed=7))]


async def test_a_controller_killed_under_load_costs_no_request_and_comes_back() -> None:
    before = snapshot()
    seq = {i: r["report"].seq for i, r in replicas("paper", before).items()}
    sending = asyncio.create_task(send(base_url("paper"), "tiny-paper", load(150, 20)))
    await asyncio.sleep(2)
    ray.kill(find_controller(), no_restart=False)
    await until(
        "both replicas at a new controller", lambda: _back(before["started_unix_s"], set(seq))
    )
    answers = await sending
    assert [a.error or a.status for a in answers if not a.whole] == []
    for replica_id, replica in replicas("paper").items():
        assert replica["report"].seq > seq[replica_id]
        assert replica["report"].mode == "leased"


async def test_without_a_controller_replicas_fall_back_and_report_it(cluster: LocalCluster) -> None:
    # A detached actor killed for good leaves no name; the replicas start the next one themselves.
    before = snapshot()
    ray.kill(find_controller(), no_restart=True)
    answers = await send(base_url("paper"), "tiny-paper", load(40, 20))
    assert [a.error or a.status for a in answers if not a.whole] == []
    await until(
        "a controller that a replica started", lambda: _back(before["started_unix_s"], None)
    )


async def test_control_that_was_switched_off_outlasts_the_controller(cluster: LocalCluster) -> None:
    before = snapshot()
    try:
        assert (await asyncio.to_thread(enforce, cluster, "off"))[0] == 0
        mine = set(replicas("paper", before))
        assert {r["report"].enforced for r in replicas("paper").values()} == {False}
        ray.kill(find_controller(), no_restart=False)
        await until("a new controller", lambda: _back(before["started_unix_s"], mine))
        now = snapshot()
        assert [switch.enforce for switch in now["switches"]] == [False]
        assert {group["on"] for group in now["groups"].values()} == {False}
        assert {r["report"].enforced for r in replicas("paper", now).values()} == {False}
        answers = await send(base_url("paper"), "tiny-paper", load(20, 20))
        assert [a.error or a.status for a in answers if not a.whole] == []
    finally:
        status, told = await asyncio.to_thread(enforce, cluster, "on")
    assert status == 0, told
    assert {r["report"].enforced for r in replicas("paper").values()} == {True}


def enforce(cluster: LocalCluster, *arguments: str) -> tuple[int, str]:
    """Exit status of ``brimful enforce``, and what it says."""
    command = [sys.executable, "-m", "serve_app.cli", "enforce", *arguments]
    address = ["--address", cluster.gcs_address]
    done = subprocess.run([*command, *address], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


async def test_an_engine_that_dies_is_replaced_and_the_other_replica_is_unharmed(
    cluster: LocalCluster,
) -> None:
    actors = replica_actors(cluster.applications(), "paper")
    victim, survivor = sorted(actors)
    began = snapshot()["started_unix_s"]
    arrived = {i: r["report"].arrivals for i, r in replicas("paper").items()}
    sending = asyncio.create_task(send(base_url("paper"), "tiny-paper", load(120, 20)))
    await asyncio.sleep(2)
    engine_process(actors[victim]["pid"]).kill()
    answers = await sending
    report = replicas("paper")[_known_as(survivor)]["report"]
    served = report.finished
    assert report.preemptions == 0
    assert report.arrivals > arrived[_known_as(survivor)]
    whole = sum(a.whole for a in answers)
    assert whole >= report.arrivals - arrived[_known_as(survivor)]
    assert report.arrivals - served == report.running + report.waiting
    # Nobody is left without a word, and what had begun went on in the other replica.
    assert [a for a in answers if a.status == 0] == []
    assert [a.error for a in answers if a.status == 200 and not a.whole] == []

    def replaced() -> bool:
        now = replica_actors(cluster.applications(), "paper")
        return len(now) == 2 and victim not in now and survivor in now

    await until("a new replica in the place of the dead one", replaced, tries=1200)
    answers = await send(base_url("paper"), "tiny-paper", load(40, 20))
    assert [a.error or a.status for a in answers if not a.whole] == []
    # The controller is nobody's: it does not go with the replica that started it.
    assert snapshot()["started_unix_s"] == began


def _back(old: float, wanted: set[str] | None) -> bool:
    now = snapshot()
    seen = set(replicas("paper", now))
    return now["started_unix_s"] != old and (seen == wanted if wanted else len(seen) == 2)


def _known_as(replica_id: str) -> str:
    """The controller's id of a replica, from Ray Serve's (which may carry the deployment)."""
    return next(known for known in replicas("paper") if known in replica_id)
