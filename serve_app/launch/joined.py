"""A running Ray cluster: its addresses, and the environment of its processes."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.errors import BrimfulError
from serve_app.environment import ON_CPU, STREAMING, variables
from serve_app.snapshot import connect

ANSWER_S = 30.0
ALONE = "node_"  # and its id: the kind of a node that no autoscaler has started
START_OWN = "local"  # Ray's own word for it
NO_STREAMING = "replicas do not stream to clients, Ray Serve's plain ingress does"
NO_SECOND_CHANCE = "a request whose replica dies is not sent to another"
EFFECTS = {
    **dict.fromkeys(STREAMING, NO_STREAMING),
    **dict.fromkeys(ON_CPU, "vLLM's CPU build needs it"),
}


@dataclass(frozen=True, slots=True)
class Joined:
    """A cluster.

    Args:
        dashboard: URL of its REST interface.
        logs: Ray's folder of this session on this machine.
        environments: by node, the variables of ``environment.variables`` that its processes have.
        nodes: what each node has of each resource.
        grows: whether an autoscaler adds nodes.
        address: of Ray's head node, as ``find`` was given it.
    """

    dashboard: str
    logs: Path
    environments: dict[str, dict[str, str]]
    nodes: tuple[Mapping[str, float], ...] = ()
    grows: bool = False
    address: str = "auto"

    def environment(self) -> dict[str, str]:
        """The input of ``brimful check``: variables that every node has."""
        nodes = list(self.environments.values())
        common = set.intersection(*map(set, nodes)) if nodes else set()
        rest = {name: value for name, value in os.environ.items() if name not in variables()}
        return rest | {name: nodes[0][name] for name in common}

    def lacking(self) -> Iterator[str]:
        """A sentence for each variable that is missing or different on a node."""
        for name in variables():
            wanted = STREAMING.get(name)
            short = [
                node
                for node, found in self.environments.items()
                if name not in found or (wanted and found[name] != wanted)
            ]
            if short:
                yield _line(name, short, len(self.environments))


def _line(name: str, short: Collection[str], nodes: int) -> str:
    where = "" if len(short) == nodes else f" on {', '.join(sorted(short))}"
    wanted = f"={STREAMING[name]}" if name in STREAMING else ""
    return f"{name}{wanted} is missing{where}: {EFFECTS.get(name, NO_SECOND_CHANCE)}"


def find(address: str) -> Joined | None:
    """The cluster at this Ray address; None: there is none on this machine, and none is named.

    Raises:
        BrimfulError: nothing answers at the given address.
    """
    if address == START_OWN:
        return None
    named = address != "auto" or bool(os.environ.get("RAY_ADDRESS"))
    try:
        connect(address)
    except BrimfulError:
        if named:
            raise
        return None
    import ray
    from ray._private import worker

    try:
        logs = Path(worker.global_worker.node.get_logs_dir_path())
        dashboard = f"http://{worker.get_dashboard_url()}"
        nodes = tuple(node["Resources"] for node in ray.nodes() if node["Alive"])
        return Joined(dashboard, logs, _environments(), nodes, _grows(), address)
    finally:
        ray.shutdown()


def _grows() -> bool:
    """Whether the cluster has an autoscaler that can add nodes."""
    import ray
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.autoscaler.v2.sdk import get_cluster_status
    from ray.experimental.internal_kv import _internal_kv_get

    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    kinds = [node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes)]
    told = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)  # by the autoscaler before that one
    report = (json.loads(told) if told else {}).get("autoscaler_report") or {}
    kinds += (report.get("node_type_mapping") or {}).values()
    return not all(kind.startswith(ALONE) for kind in kinds)


def _environments() -> dict[str, dict[str, str]]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    names = tuple(variables())

    @ray.remote(num_cpus=0)
    def ask() -> dict[str, str]:  # pickled by value: this project may not be installed there
        import os

        return {name: os.environ[name] for name in names if name in os.environ}

    asked = {
        str(node["NodeManagerAddress"]): ask.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in ray.nodes()
        if node["Alive"]
    }
    found = {}
    for node, answer in asked.items():
        try:
            found[node] = ray.get(answer, timeout=ANSWER_S)
        except RayError:  # the node has no room for a process, or is about to end
            continue
    return found
