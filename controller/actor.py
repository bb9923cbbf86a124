"""The one central Ray actor: named, detached, restarted without limit, with soft state only."""

import logging
import time
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from controller.config import BatchingConfig, parse_batching
from controller.loop import ControlLoop
from controller.records import ReplicaReport, from_wire, to_wire

NAME = "brimful-controller"
NAMESPACE = "brimful"

logger = logging.getLogger(__name__)


class BatchController:
    """A ``ControlLoop`` behind a name. Dicts of primitives go both ways."""

    def __init__(self) -> None:
        # Wall-clock milliseconds: a later life has a higher epoch on any node of the cluster.
        self._loop = ControlLoop(epoch=time.time_ns() // 1_000_000)
        self._configs: dict[str, tuple[dict[str, Any], BatchingConfig]] = {}
        logger.info("Batch controller started, epoch %d.", self._loop.epoch)

    def exchange(self, report: dict[str, Any], batching: dict[str, Any]) -> dict[str, Any]:
        """A ``ReplicaReport`` and its group's batching block for ``BatchLimits``.

        Raises:
            ReportError, ConfigError: see ``ControlLoop.exchange``.
        """
        taken = from_wire(ReplicaReport, report)
        config = self._config(taken.group, batching)
        return to_wire(self._loop.exchange(taken, config, time.monotonic()))

    def snapshot(self) -> dict[str, Any]:
        """What the controller knows now (``ControlLoop.snapshot``)."""
        return self._loop.snapshot(time.monotonic())

    def _config(self, group: str, batching: dict[str, Any]) -> BatchingConfig:
        known = self._configs.get(group)
        if known is None or known[0] != batching:
            known = self._configs[group] = (batching, parse_batching(batching))
        return known[1]


def get_controller() -> ActorHandle:
    """The cluster's batch controller; whoever asks first starts it.

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
    ).remote()


def _head_node_id() -> str:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    head = next((n for n in nodes if "node:__internal_head__" in n["Resources"]), None)
    return str(head["NodeID"] if head else ray.get_runtime_context().get_node_id())


def find_controller() -> ActorHandle:
    """The controller that runs already.

    Raises:
        ValueError: Ray knows no actor of that name.
    """
    return ray.get_actor(NAME, namespace=NAMESPACE)
