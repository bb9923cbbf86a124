"""Removes applications, and waits until their streams have ended."""

import contextlib
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from controller.errors import BrimfulError
from serve_app.apply.cluster import Cluster, beside
from serve_app.launch.running import AWAY_S, describe
from serve_app.snapshot import connect

POLL_S = 1.0


def remove(cluster: Cluster, names: Collection[str]) -> None:
    """Make Serve end these applications; others, and any deployed from code, stay as they are."""
    others = {name: one for name, one in cluster.applications().items() if name not in names}
    cluster.put({"applications": beside(others, {})})


def end_unplaced(
    cluster: Cluster, running: Mapping[str, Any], names: Collection[str], address: str
) -> None:
    """End replicas of these applications that were never placed, once Serve has removed them.

    Serve asks them to drain, and waits the whole ``graceful_shutdown_timeout_s`` for an answer.

    Args:
        running: the applications before the removal.
        address: of Ray's head node.

    Raises:
        BrimfulError: nothing answers there.
    """
    actors = {
        one["replica_id"]: one["actor_name"]
        for one in _replicas(running, names)
        if one["state"] == "STARTING" and not one.get("node_id")
    }
    if not actors:
        return
    until_s = time.monotonic() + AWAY_S
    while time.monotonic() < until_s and any(
        one["replica_id"] in actors and one["state"] != "STOPPING"
        for one in _replicas(cluster.applications(), names)
    ):  # else Serve would start others in their place
        time.sleep(POLL_S)
    import ray

    before = signal.getsignal(signal.SIGTERM)
    connect(address)
    try:
        for name in actors.values():
            with contextlib.suppress(ValueError):  # it is gone
                ray.kill(ray.get_actor(name, namespace="serve"))
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)  # Ray has put another in its place


def _replicas(running: Mapping[str, Any], names: Collection[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        for deployment in running.get(name, {}).get("deployments", {}).values():
            yield from deployment.get("replicas", [])


def wait_gone(
    cluster: Cluster,
    names: Collection[str],
    say: Callable[[str], None],
    away_s: float = AWAY_S,
) -> dict[str, Any]:
    """Return the running applications once these are gone.

    Args:
        say: called with what is still there, whenever that changes.
        away_s: how long Ray's interface may not answer, seconds.

    Raises:
        BrimfulError: it did not answer for longer.
    """
    state, seen_s = "", time.monotonic()
    while True:
        try:
            running = cluster.applications()
        except BrimfulError:
            if time.monotonic() - seen_s >= away_s:
                raise
        else:
            seen_s = time.monotonic()
            left = {name: one for name, one in running.items() if name in names}
            if not left:
                return running
            if (now := describe(left)) != state:
                say(now)
                state = now
        time.sleep(POLL_S)
