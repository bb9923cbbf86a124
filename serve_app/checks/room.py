"""Can the nodes of a cluster, or the worker groups of a RayService, hold the replicas that a Serve
configuration asks for?

If they cannot, Serve says DEPLOYING for ever, and KubeRay adds nothing.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ray.serve.config import AutoscalingConfig

from serve_app.checks.built import Model, Placed
from serve_app.checks.findings import Findings, Target, listed, mapping

SUFFIXES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|)")
UNBOUNDED = 2**31 - 1  # KubeRay's own maxReplicas of a group that names none
UNKNOWN = math.inf  # a pod without limits: as much as its node has


def check_nodes(placed: Sequence[Placed], target: Target, findings: Findings) -> None:
    """Report replicas that the nodes of a running cluster can never hold.

    If an autoscaler adds nodes, each finding is a note.
    """
    if target.nodes is None:
        return
    there: Counter[str] = sum(map(Counter, target.nodes), Counter())
    found = room_problems(placed, there, 0.0, "nodes")
    if target.grows:
        findings.notes.extend(f"{one}, until the autoscaler adds to them" for one in found)
    else:
        findings.add(found)


def room_problems(
    placed: Sequence[Placed], there: Mapping[str, float], other: float, them: str
) -> list[str]:
    """Replicas that do not fit all nodes together, one alone or the least number.

    Args:
        there: what all nodes together have, or can have, of each resource; ``other``: of the rest.
        them: what the nodes are called.
    """
    found: list[str] = []
    least: Counter[str] = Counter()
    for place, built in placed:
        for name, model in built.models.items():
            bundles = model.deployment._replica_config.placement_group_bundles or ()
            asked: Counter[str] = sum(map(Counter, bundles), Counter())
            if short := _short(asked, there, other, them):
                found.append(f"{place}: a replica of {name} asks for {short}")
            least.update({key: amount * _least(model) for key, amount in asked.items()})
    short = _short(least, there, other, them)
    return found or ([f"the replicas ask for at least {short}"] if short else [])


def _short(asked: Mapping[str, float], there: Mapping[str, float], other: float, them: str) -> str:
    """Resources that are asked for and missing; empty: all fit."""
    short = [key for key in sorted(asked) if asked[key] > there.get(key, other) + 1e-6]
    told = " and ".join(f"{asked[key]:g} {key} of {there.get(key, other):g}" for key in short)
    return f"{told} in all {them}" if told else ""


def _least(model: Model) -> int:
    """The least number of replicas that there can be."""
    config = model.deployment._deployment_config
    scaling = config.autoscaling_config
    if isinstance(scaling, dict):
        scaling = AutoscalingConfig(**scaling)
    return int(config.num_replicas if scaling is None else scaling.min_replicas)


def of_groups(cluster: Mapping[str, Any]) -> dict[str, float]:
    """The CPUs and GPUs that the head and all workers of a RayService have at most."""
    held = [(1, _of_node(mapping(cluster, "headGroupSpec")))]
    for _, group in listed(cluster, "workerGroupSpecs"):
        most = int(group.get("maxReplicas", UNBOUNDED))
        if not cluster.get("enableInTreeAutoscaling"):  # what KubeRay starts
            most = min(most, max(group.get("replicas") or 0, group.get("minReplicas") or 0))
        most *= 0 if group.get("suspend") else group.get("numOfHosts") or 1
        held.append((most, _of_node(group)))
    return {key: sum(n * one[key] for n, one in held if n) for key in ("CPU", "GPU")}


def _of_node(group: Mapping[str, Any]) -> dict[str, float]:
    """The resources that KubeRay reports to Ray for a pod of the group."""
    (container, *_) = [one for _, one in listed(group, "template", "spec", "containers")] or [{}]
    resources, start = mapping(container, "resources"), mapping(group, "rayStartParams")
    limits = {**mapping(resources, "requests"), **mapping(resources, "limits")}
    cards = [key for key in limits if re.search("gpu$|^nvidia.com/mig", str(key))]
    gpus = sum(_quantity(limits[key]) for key in cards) if limits else UNKNOWN
    return {
        "CPU": _quantity(start.get("num-cpus", limits.get("cpu"))),
        "GPU": _quantity(start["num-gpus"]) if "num-gpus" in start else gpus,
    }


def _quantity(amount: Any) -> float:
    found = QUANTITY.fullmatch(str(amount))
    return float(found[1]) * SUFFIXES[found[2]] if found else UNKNOWN
