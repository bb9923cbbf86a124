"""``brimful stop``: applications and, with the last of them, the batch controller.

``remove``, ``end_unplaced`` and ``wait_gone`` take applications away for ``brimful serve``, too.
"""

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from controller.errors import BrimfulError
from serve_app.apply.cluster import AWAY_S, Cluster, beside, describe
from serve_app.checks.findings import BATCHES, BUILDER, CONSOLE, builder_of
from serve_app.launch.joined import find
from serve_app.options import add_address
from serve_app.snapshot import connect

ANCHOR = "serve_app.anchor:build"  # anchors of lasting workers
OURS = (BUILDER, CONSOLE, BATCHES, ANCHOR)
ABOUT = (
    "Remove applications from a running cluster: streams under way go on to their end. With the"
    " last one the batch controller ends, which `serve shutdown` leaves (a detached actor). Ray,"
    " Ray Serve, applications that are not of this project, and those that `serve.run` deployed"
    " (`serve.delete` removes them) stay."
)
POLL_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``brimful stop``."""
    parser.description = ABOUT
    parser.add_argument(
        "names", nargs="*", metavar="APPLICATION", help="default: all applications of this project"
    )
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    """Remove the applications, and controllers that no replica reports to any more.

    Raises:
        BrimfulError: there is no cluster, no such application, or an operator that would deploy it
            again.
    """
    joined = find(args.address)
    if joined is None:
        raise BrimfulError("no Ray cluster on this machine")
    cluster = Cluster(joined.dashboard)
    if cluster.by_kuberay():
        raise BrimfulError(
            "KubeRay's operator would deploy it again: take it out of the RayService, or"
            " `kubectl delete rayservice NAME`"
        )
    running = cluster.applications()
    names = chosen(args.names, running)
    if names:
        remove(cluster, names)
        end_unplaced(cluster, running, names, args.address)
        print(f"removed: {', '.join(names)}; open streams run to their end")
    there = wait_gone(
        cluster, names, lambda state: print(f"  {state}", file=sys.stderr, flush=True)
    )
    if left := [*ours(there), *(name for name, told in there.items() if from_code(told))]:
        print(f"left: {', '.join(left)}, and therefore the batch controller")
        return 0
    for version in end_controllers(args.address):
        print(f"ended: batch controller {version}")
    print("Ray and Ray Serve run on: `serve shutdown`, `ray stop`")
    return 0


def ours(running: Mapping[str, Any]) -> list[str]:
    """The applications of this project."""
    return [
        name
        for name, told in running.items()
        if not from_code(told) and builder_of(told["deployed_app_config"]) in OURS
    ]


def from_code(told: Mapping[str, Any]) -> bool:
    """Whether an application was deployed by ``serve.run``, not from a file."""
    return told.get("deployed_app_config") is None


def chosen(names: list[str], running: Mapping[str, Any]) -> list[str]:
    """The applications to remove.

    Raises:
        BrimfulError: one of these names does not exist.
    """
    there = ours(running)
    if unknown := [name for name in names if name not in there]:
        raise BrimfulError(
            f"{', '.join(unknown)}: no application of this project runs under this name; running:"
            f" {', '.join(there) or 'none'}"
        )
    return names or there


def end_controllers(address: str) -> list[str]:
    """End all batch controllers of the cluster; returns their versions."""
    import ray

    from controller.fleet.actor import running_controllers

    connect(address)
    try:
        handles = running_controllers()
        for handle in handles.values():
            ray.kill(handle, no_restart=True)
        return sorted(handles)
    finally:
        ray.shutdown()


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
