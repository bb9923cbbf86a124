"""``brimful stop``: applications and, with the last of them, the batch controller."""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from controller.errors import BrimfulError
from serve_app.apply.cluster import Cluster
from serve_app.checks.findings import BATCHES, BUILDER, CONSOLE, builder_of
from serve_app.launch.joined import find
from serve_app.launch.removal import end_unplaced, remove, wait_gone
from serve_app.options import add_address
from serve_app.snapshot import connect

ANCHOR = "serve_app.anchor:build"  # anchors of lasting workers
OURS = (BUILDER, CONSOLE, BATCHES, ANCHOR)
# Names of this project's deployments begin with one of these classes, or are these.
SERVERS = ("BrimfulServer:", "EmulatedServer:", "MixedServer:", "Batches", "Console")
APART = ("Prefill:", "Decode:")  # with prefill and decode apart, Ray's own as well as ours
ABOUT = (
    "Remove applications from a running cluster; open streams run to their end. After the last"
    " one the batch controller ends too, a detached actor that `serve shutdown` leaves. Ray,"
    " Ray Serve and other projects' applications stay."
)


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
        if coded := [name for name in names if from_code(running[name])]:
            remove_from_code(coded, args.address)
        end_unplaced(cluster, running, names, args.address)
        print(f"removed: {', '.join(names)}; open streams run to their end")
    if unclear := [name for name in perhaps_ours(running) if name not in names]:
        print(
            f"left, because it may be Ray's own: {', '.join(unclear)} (give its name to remove it)"
        )
    there = wait_gone(
        cluster, names, lambda state: print(f"  {state}", file=sys.stderr, flush=True)
    )
    left = [*ours(there), *perhaps_ours(there)]
    if left:
        print(f"left: {', '.join(left)}, and therefore the batch controller")
        return 0
    for version in end_controllers(args.address):
        print(f"ended: batch controller {version}")
    print("Ray and Ray Serve run on: `serve shutdown`, `ray stop`")
    return 0


def ours(running: Mapping[str, Any]) -> list[str]:
    """The applications of this project."""
    return [name for name, told in running.items() if _is_ours(told)]


def from_code(told: Mapping[str, Any]) -> bool:
    """Whether an application was deployed by ``serve.run``, not from a file."""
    return told.get("deployed_app_config") is None


def perhaps_ours(running: Mapping[str, Any]) -> list[str]:
    """Applications from code with prefill and decode apart: ours look the same as Ray's."""
    return [name for name, told in running.items() if from_code(told) and _has_model(told, APART)]


def _is_ours(told: Mapping[str, Any]) -> bool:
    if from_code(told):
        return _has_model(told, SERVERS)
    return builder_of(told["deployed_app_config"]) in OURS


def _has_model(told: Mapping[str, Any], prefixes: tuple[str, ...]) -> bool:
    return any(name.startswith(prefixes) for name in told.get("deployments") or ())


def chosen(names: list[str], running: Mapping[str, Any]) -> list[str]:
    """The applications to remove.

    Raises:
        BrimfulError: one of these names does not exist.
    """
    there = ours(running)
    if unknown := [name for name in names if name not in (*there, *perhaps_ours(running))]:
        raise BrimfulError(
            f"{', '.join(unknown)}: no application of this project runs under this name; running:"
            f" {', '.join(there) or 'none'}"
        )
    return names or there


def remove_from_code(names: list[str], address: str) -> None:
    """Make Serve end applications that no file deployed; its REST interface cannot."""
    import ray
    from ray import serve

    connect(address)
    try:
        for name in names:
            serve.delete(name, _blocking=False)
    finally:
        ray.shutdown()


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
