"""What the tests ask the batch controller, and do to processes."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import ray
import requests
from prometheus_client.parser import text_string_to_metric_families
from ray.exceptions import RayError

from controller.fleet.actor import find_controller
from controller.metrics import PREFILLS

Replicas = dict[str, dict[str, Any]]


def snapshot() -> dict[str, Any]:
    """The controller's knowledge now."""
    return ray.get(find_controller().snapshot.remote(), timeout=30)


def replicas(app: str, known: dict[str, Any] | None = None) -> Replicas:
    """The replicas of application ``app`` in the controller's view, by id."""
    known = known or snapshot()
    return {
        replica_id: replica
        for name, group in known["groups"].items()
        if name.startswith(f"tiny-{app}-")
        for replica_id, replica in group["replicas"].items()
    }


def replica_actors(applications: dict[str, Any], app: str) -> dict[str, Any]:
    """The running model replicas of an application, by replica id (Ray's own details of each)."""
    return {
        replica["replica_id"]: replica
        for name, deployment in applications[app]["deployments"].items()
        if name.startswith(("BrimfulServer:", "EmulatedServer:"))
        for replica in deployment["replicas"]
        if replica["state"] == "RUNNING"
    }


def engine_process(replica_pid: int) -> psutil.Process:
    """The EngineCore of a replica."""
    children = psutil.Process(replica_pid).children(recursive=True)
    return next(c for c in children if "EngineCore" in " ".join([c.name(), *c.cmdline()]))


async def until(
    what: str, found: Callable[[], bool], tries: int = 600, seen: Callable[[], object] | None = None
) -> None:
    """Ask every 0.2 s; a controller that is just being restarted counts as not yet.

    Args:
        seen: what there was instead, for the error.

    Raises:
        AssertionError: it did not come about.
    """
    for _ in range(tries):
        try:
            if found():
                return
        except (RayError, ValueError):
            pass
        await asyncio.sleep(0.2)
    raise AssertionError(f"never saw: {what}" + (f"; but: {seen()}" if seen else ""))


def metrics_text() -> str:
    """What Prometheus would scrape of this node now."""
    port = ray.nodes()[0]["MetricsExportPort"]
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text


@contextlib.contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """These processes do nothing for a ``with`` block."""
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def prefills(app: str) -> dict[str, float]:
    """How many prompts of an application were prefilled, by where."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics_text()):
        for sample in family.samples:
            if sample.name == PREFILLS.exported and sample.labels["application"] == app:
                where = sample.labels["where"]
                found[where] = found.get(where, 0) + sample.value
    return found
