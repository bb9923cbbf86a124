"""Can the nodes of a cluster, or the worker groups of a RayService, hold the replicas that a Serve
configuration asks for?

Where they cannot, Serve says DEPLOYING and KubeRay adds nothing, for ever.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray.serve.config import AutoscalingConfig

from controller.validation import join
from serve_app.checks.built import Built, Model
from serve_app.checks.findings import Findings, Target
from serve_app.checks.objects import listed, mapping

Resources = dict[str, float]
SUFFIXES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|)")
UNBOUNDED = 2**31 - 1  # KubeRay's own maxReplicas of a group that names none
UNKNOWN = math.inf  # a pod without limits: as much as its node has
# What each node has of itself, and no pod's spec says.
OF_ITSELF = ("node:", "accelerator_type:", "memory", "object_store_memory")


@dataclass(frozen=True)
class Nodes:
    """Nodes that are alike.

    Args:
        name: of their group; empty: of none.
        most: how many there can be.
        each: what one of them has.
    """

    name: str
    most: int
    each: Resources


def check_room(
    applications: list[tuple[str, list[Any], Built]],
    cluster: Mapping[str, Any],
    findings: Findings,
) -> None:
    """Report replicas that no group can hold, and more of them than all groups can.

    Args:
        applications: the place of each, its ``deployments`` and what it comes to.
    """
    _check(applications, list(_nodes(cluster)), findings, "spec.serveConfigV2", "groups")


def check_nodes(
    applications: list[tuple[str, list[Any], Built]], target: Target, findings: Findings
) -> None:
    """Report replicas that the nodes of a cluster that runs can never hold.

    Where an autoscaler adds nodes, each is a note.
    """
    if target.nodes is None:
        return
    found = Findings()
    nodes = [Nodes("", 1, dict(one)) for one in target.nodes]
    _check(applications, nodes, found, "applications", "nodes", of_itself=())
    if target.grows:
        findings.notes.extend(f"{one}, until the autoscaler adds to them" for one in found.problems)
    else:
        findings.add(found.problems)


def _check(
    applications: list[tuple[str, list[Any], Built]],
    nodes: list[Nodes],
    findings: Findings,
    where: str,
    them: str,
    of_itself: tuple[str, ...] = OF_ITSELF,
) -> None:
    """See ``check_room``.

    Args:
        where: the place to name for all applications together.
        them: what the nodes are called.
        of_itself: resources that are not known of the nodes.
    """
    least_of_all: Resources = {}
    single: list[tuple[str, Model, Resources]] = []
    fits = True
    for place, overrides, built in applications:
        for name, model in built.models.items():
            options = _options(model, name, overrides)
            bundles = _bundles(options, of_itself)
            if not bundles:
                continue
            strategy = str(options.get("placement_group_strategy"))
            problem = _too_large(bundles, strategy, nodes, them)
            if problem:
                fits = False
                findings.add([f"{place}: a replica of {name} asks for {problem}"])
                continue
            least, most = _counts(model, options)
            asked = _sum(bundles)
            if least <= 1:
                single.append((f"{place}: {name}", model, _sum([asked] * (2 - least))))
            for key, amount in asked.items():
                least_of_all[key] = least_of_all.get(key, 0.0) + least * amount
            _note_most(f"{place}: {name}", most, asked, nodes, findings, them)
    short = [
        key for key, amount in sorted(least_of_all.items()) if amount > _there(key, nodes) + 1e-6
    ]
    if short and fits:
        told = ", ".join(f"{least_of_all[k]:g} {k} of {_there(k, nodes):g}" for k in short)
        findings.add([f"{where}: the replicas at least ask for {told} in all {them}"])
    elif fits:
        _note_single(single, least_of_all, nodes, findings)


def _note_single(
    single: list[tuple[str, Model, Resources]],
    least_of_all: Resources,
    nodes: list[Nodes],
    findings: Findings,
) -> None:
    """A note on each model that may have one replica, where two of it have no room beside others.

    Args:
        single: with what the second asks for (and the first, where there may be none).
    """
    for name, model, more in single:
        if any(least_of_all[k] + n > _there(k, nodes) + 1e-6 for k, n in more.items()):
            drain_s = model.deployment._deployment_config.graceful_shutdown_timeout_s
            findings.notes.append(
                f"{name} may have one replica, and no room for a second: while it is redeployed"
                f" nobody is served, until its last stream has ended (graceful_shutdown_timeout_s:"
                f" {drain_s:g}) and another has started"
            )


def _note_most(
    name: str, most: int, asked: Resources, nodes: list[Nodes], findings: Findings, them: str
) -> None:
    room = min((_there(k, nodes) / amount for k, amount in asked.items() if amount), default=most)
    if most > room + 1e-6:
        findings.notes.append(
            f"{name} may have {most} replicas, and the {them} have room for {math.floor(room)}"
        )


def _too_large(
    bundles: list[Resources], strategy: str, nodes: list[Nodes], them: str
) -> str | None:
    """What a replica asks for and no node, or not all of them, can give."""
    whole = [_sum(bundles)] if strategy == "STRICT_PACK" else bundles
    for bundle in whole:
        if not any(_holds(one.each, bundle) for one in nodes):
            return f"{_told(bundle)} on one node; the {them} have {_largest(nodes, bundle)}"
    asked = _sum(bundles)
    short = {key: amount for key, amount in asked.items() if amount > _there(key, nodes) + 1e-6}
    if short:
        there = {key: _there(key, nodes) for key in short}
        return f"{_told(short)}; all {them} together can have {_told(there)}"
    return None


def _largest(nodes: list[Nodes], bundle: Resources) -> str:
    each = [
        f"{one.name}: ".removeprefix(": ") + _told({k: one.each.get(k, 0.0) for k in bundle})
        for one in nodes
    ]
    return "; ".join(dict.fromkeys(each)) or "no node"


def _holds(node: Resources, bundle: Resources) -> bool:
    return all(node.get(key, 0.0) + 1e-6 >= amount for key, amount in bundle.items())


def _there(key: str, nodes: list[Nodes]) -> float:
    return sum(one.most * one.each.get(key, 0.0) for one in nodes if one.most)


def _told(resources: Resources) -> str:
    # In one order: Ray merges bundles by way of a set.
    return " and ".join(f"{amount:g} {key}" for key, amount in sorted(resources.items()))


def _sum(bundles: list[Resources]) -> Resources:
    total: Resources = {}
    for bundle in bundles:
        for key, amount in bundle.items():
            total[key] = total.get(key, 0.0) + amount
    return total


def _options(model: Model, name: str, overrides: list[Any]) -> dict[str, Any]:
    """The deployment's options as its override leaves them."""
    theirs = model.deployment._replica_config
    options = {
        "placement_group_bundles": theirs.placement_group_bundles,
        "placement_group_strategy": theirs.placement_group_strategy,
    }
    for override in overrides:
        if isinstance(override, dict) and override.get("name") == name:
            options |= override
    return options


def _bundles(options: Mapping[str, Any], of_itself: tuple[str, ...]) -> list[Resources]:
    listed = options["placement_group_bundles"] or []
    return [
        {
            str(key): float(amount)
            for key, amount in bundle.items()
            if amount and not str(key).startswith(of_itself)
        }
        for bundle in listed
    ]


def _counts(model: Model, options: Mapping[str, Any]) -> tuple[int, int]:
    """The least and the most replicas that there can be."""
    config = model.deployment._deployment_config
    count = options.get("num_replicas")
    if isinstance(count, int):
        return count, count
    scaling = options.get("autoscaling_config") or config.autoscaling_config
    if isinstance(scaling, dict):
        scaling = AutoscalingConfig(**scaling)
    if scaling is not None:
        return scaling.min_replicas, scaling.max_replicas
    return config.num_replicas, config.num_replicas


def _nodes(cluster: Mapping[str, Any]) -> Iterator[Nodes]:
    yield Nodes("head", 1, _of_node(mapping(cluster, "headGroupSpec")))
    grows = bool(cluster.get("enableInTreeAutoscaling"))
    for index, group in listed(cluster, "workerGroupSpecs"):
        name = str(group.get("groupName") or join("workerGroupSpecs", [index]))
        yield Nodes(name, _size(group, grows) * (group.get("numOfHosts") or 1), _of_node(group))


def _size(group: Mapping[str, Any], grows: bool) -> int:
    """How many replicas of a group there can be; where it does not grow, what KubeRay starts."""
    most = int(group.get("maxReplicas", UNBOUNDED))
    if group.get("suspend"):
        return 0
    asked = max(group.get("replicas") or 0, group.get("minReplicas") or 0)
    return most if grows else min(asked, most)


def _of_node(group: Mapping[str, Any]) -> Resources:
    """What KubeRay tells Ray that a pod of the group has."""
    (container, *_) = [one for _, one in listed(group, "template", "spec", "containers")] or [{}]
    resources = mapping(container, "resources")
    limits = {**mapping(resources, "requests"), **mapping(resources, "limits")}
    start = mapping(group, "rayStartParams")
    found: Resources = {"CPU": UNKNOWN, "GPU": 0.0 if limits else UNKNOWN}
    for key, amount in limits.items():
        if key == "cpu":
            cpus = _quantity(amount)
            found["CPU"] = math.ceil(cpus) if math.isfinite(cpus) else UNKNOWN
        elif str(key).endswith("gpu") or str(key).startswith("nvidia.com/mig"):
            found["GPU"] = found["GPU"] + _quantity(amount)
        elif key == "google.com/tpu":
            found["TPU"] = _quantity(amount)
    given = {**mapping(group, "resources"), **_custom(start.get("resources"))}
    for key, name in (("num-cpus", "CPU"), ("num-gpus", "GPU")):
        if key in start:
            given[name] = start[key]
    return found | {str(key): _quantity(amount) for key, amount in given.items()}


def _custom(text: Any) -> dict[str, Any]:
    """Ray's ``--resources``: JSON, in quotes of a shell's."""
    try:
        told = json.loads(str(text).strip("'\"").replace('\\"', '"'))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _quantity(amount: Any) -> float:
    found = QUANTITY.fullmatch(str(amount))
    return float(found[1]) * SUFFIXES[found[2]] if found else UNKNOWN
