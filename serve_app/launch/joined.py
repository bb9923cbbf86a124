"""The Ray cluster that there is: where it answers, and how its processes were started."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.errors import BrimfulError
from serve_app.environment import ON_CPU, STREAMING, variables
from serve_app.snapshot import connect

ANSWER_S = 30.0
START_OWN = "local"  # Ray's own word for it
NO_STREAMING = "replicas do not stream to clients, Ray Serve's plain ingress does"
NO_SECOND_CHANCE = "a request whose replica dies is not sent to another"
EFFECTS = {
    **dict.fromkeys(STREAMING, NO_STREAMING),
    **dict.fromkeys(ON_CPU, "vLLM's CPU build wants it"),
}


@dataclass(frozen=True, slots=True)
class Joined:
    """A cluster.

    Args:
        dashboard: URL of its REST interface.
        logs: Ray's folder of this session on this machine.
        environments: by node, the variables of ``environment.variables`` that its processes have.
    """

    dashboard: str
    logs: Path
    environments: dict[str, dict[str, str]]

    def environment(self) -> dict[str, str]:
        """What ``brimful check`` has to go by: variables that every node has."""
        nodes = list(self.environments.values())
        common = set.intersection(*map(set, nodes)) if nodes else set()
        rest = {name: value for name, value in os.environ.items() if name not in variables()}
        return rest | {name: nodes[0][name] for name in common}

    def lacking(self) -> Iterator[str]:
        """A sentence for each variable that a node's processes lack, or have another value of."""
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
        BrimfulError: nothing answers at an address that was named.
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
        return Joined(f"http://{worker.get_dashboard_url()}", logs, _environments())
    finally:
        ray.shutdown()


def _environments() -> dict[str, dict[str, str]]:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    names = tuple(variables())

    @ray.remote(num_cpus=0)
    def ask() -> dict[str, str]:  # sent as it is: this project may not be installed there
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
        except RayError:  # it has no room for a process, or is about to go
            continue
    return found
