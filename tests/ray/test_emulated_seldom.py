"""No replica while no request comes, one for the first: our policy in Ray Serve's scaling."""

import asyncio
from typing import Any

import pytest

from serve_app.demo.client import Ask, send
from serve_app.launch.local_cluster import LocalCluster
from serve_app.scaling_export import read_told
from tests.ray.conftest import base_url
from tests.ray.control import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("emulated")]


def replicas(cluster: LocalCluster) -> list[Any]:
    """The model's, in whatever state."""
    deployments = cluster.applications()["seldom"]["deployments"]
    return [r for name, d in deployments.items() if "Server:" in name for r in d["replicas"]]


async def test_a_replica_that_nobody_asks_goes_and_a_request_is_held_while_one_starts(
    cluster: LocalCluster,
) -> None:
    await until("no replica", lambda: not replicas(cluster), 3000, read_told)
    (held,) = await send(base_url("seldom"), "tiny-seldom", [Ask("a river", 4)])
    assert (held.error or held.status, held.tokens) == (200, 4)
    assert len(await asyncio.to_thread(replicas, cluster)) == 1
