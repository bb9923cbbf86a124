"""The central Ray actor: named, detached, restarted without limit, with soft state only.

It outlives every application, so a redeployment may bring replicas of other code than its own. Its
name holds its version: replicas of one version have one actor, those of another another, and each
goes on being served while it is there. One that nobody reports to any more ends itself.
"""

import logging
import threading
import time
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from controller.config import BatchingConfig, parse_batching
from controller.fleet.loop import ControlLoop
from controller.records import ReplicaReport, check_version, from_wire, to_wire
from controller.version import VERSION

PREFIX = "brimful-controller-"
NAME = PREFIX + VERSION
NAMESPACE = "brimful"
UNUSED_S = 600.0  # ten longest leases; a replica that comes later starts a new one

logger = logging.getLogger(__name__)


class BatchController:
    """A ``ControlLoop`` behind a name. Dicts of primitives go both ways.

    Args:
        ends_after_s: without a report for so long, the actor that this is in ends itself; None: no.
    """

    def __init__(self, ends_after_s: float | None = None) -> None:
        self._loop = ControlLoop()
        self._configs: dict[str, BatchingConfig] = {}
        self._started_unix_s = time.time()
        self._reported_s = time.monotonic()
        if ends_after_s is not None:
            threading.Thread(target=self._end_unused, args=(ends_after_s,), daemon=True).start()
        logger.info("Batch controller %s started.", VERSION)

    def exchange(self, report: dict[str, Any], batching: dict[str, Any]) -> dict[str, Any]:
        """A ``ReplicaReport`` and its group's batching block for ``BatchLimits``.

        Raises:
            ReportError: the replica has another version; see also ``ControlLoop.exchange``.
            ConfigError: see ``ControlLoop.exchange``.
        """
        check_version(report)
        self._reported_s = now_s = time.monotonic()
        taken = from_wire(ReplicaReport, report)
        return to_wire(self._loop.exchange(taken, self._config(batching), now_s))

    def snapshot(self) -> dict[str, Any]:
        """``ControlLoop.snapshot``, with ``version`` and since when this life lasts, Unix time."""
        known = self._loop.snapshot(time.monotonic())
        return {"version": VERSION, "started_unix_s": self._started_unix_s, **known}

    def _config(self, batching: dict[str, Any]) -> BatchingConfig:
        # Parsing takes longer than the rest of an exchange.
        text = repr(batching)
        if text not in self._configs:
            parsed, used = parse_batching(batching), self._loop.configs()
            self._configs = {t: c for t, c in self._configs.items() if c in used}
            self._configs[text] = parsed
        return self._configs[text]

    def _end_unused(self, after_s: float) -> None:
        while (left_s := self._reported_s + after_s - time.monotonic()) > 0:
            time.sleep(left_s)
        logger.info("Nobody reported for %.0f s; the batch controller ends.", after_s)
        while True:
            try:
                ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
            except Exception:  # the cluster's store is away for a moment
                logger.exception("The batch controller could not end, and tries again.")
            time.sleep(after_s)


def get_controller(ends_after_s: float = UNUSED_S) -> ActorHandle:
    """The cluster's batch controller of this version; whoever asks first starts it.

    It takes no CPU from the replicas, outlives every application (detached), and Ray starts it
    again wherever it dies.
    """
    # Said explicitly: without a strategy it would join the placement group of the replica that
    # asked first, and could not start again once that replica is gone. The head node stays.
    place = NodeAffinitySchedulingStrategy(_head_node_id(), soft=True)
    remote = ray.remote(BatchController)
    return remote.options(
        name=NAME,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        max_restarts=-1,
        num_cpus=0,
        scheduling_strategy=place,
    ).remote(ends_after_s)


def _head_node_id() -> str:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    head = next((n for n in nodes if "node:__internal_head__" in n["Resources"]), None)
    return str(head["NodeID"] if head else ray.get_runtime_context().get_node_id())


def find_controller() -> ActorHandle:
    """The controller of this version that runs already.

    Raises:
        ValueError: there is none; names the versions of those that run.
    """
    running = running_versions()
    if VERSION not in running:
        others = f"; running: {', '.join(running)}" if running else ""
        raise ValueError(f"none of version {VERSION}{others}")
    return ray.get_actor(NAME, namespace=NAMESPACE)


def running_versions() -> list[str]:
    """The versions of all batch controllers of the cluster."""
    named = list_named_actors(all_namespaces=True)
    ours = [str(a["name"]) for a in named if a["namespace"] == NAMESPACE]
    return sorted(name.removeprefix(PREFIX) for name in ours if name.startswith(PREFIX))
