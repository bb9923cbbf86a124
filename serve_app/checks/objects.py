"""Kubernetes' own objects beside a RayService: their schemas, and the pods that they stand for."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator

from controller.validation import join
from serve_app.checks.crd import problems_by
from serve_app.checks.values import line

RAY_SERVICE = "RayService"
CLUSTER = "spec.rayClusterConfig"
# What KubeRay writes on pods itself; of a cluster's name only KubeRay knows the rest.
NODE_TYPE, GROUP = "ray.io/node-type", "ray.io/group"
OF_KUBERAY = {
    "ray.io/is-ray-node": "yes",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
UNKNOWN_LABELS = ("ray.io/cluster", "ray.io/serve", "ray.io/identifier")


@dataclass(frozen=True)
class Pods:
    """Pods that are alike.

    Args:
        place: of their spec in the object.
        labels: theirs, with what KubeRay adds.
        spec: a pod's; what is no mapping is empty.
        of_ray: KubeRay makes them.
    """

    place: str
    labels: Mapping[str, Any]
    spec: Mapping[str, Any]
    of_ray: bool


@cache
def _schemas() -> dict[str, Any]:
    text = resources.files("serve_app.checks").joinpath("kubernetes.json").read_text()
    schemas: dict[str, Any] = json.loads(text)
    return schemas


def object_problems(document: Mapping[str, Any]) -> list[str] | None:
    """What Kubernetes' schema has against an object; None: there is none here of its kind."""
    schemas = _schemas()
    version, name = document.get("apiVersion"), document.get("kind")
    kind = f"{version} {name}"
    if kind not in schemas["kinds"]:
        served = [one.split()[0] for one in schemas["kinds"] if one.split()[1] == name]
        group = str(version).rpartition("/")[0]
        if any(group in (one.rpartition("/")[0], "extensions") for one in served):
            return [line("apiVersion", version, f"must be {' or '.join(map(repr, served))}")]
        return None
    schema = {"$ref": f"#/$defs/{schemas['kinds'][kind]}", "$defs": schemas["$defs"]}
    bare = {key: value for key, value in document.items() if key != "status"}
    return problems_by(Draft202012Validator(schema), bare)


def dig(value: Any, *keys: str) -> Any:
    """The value below ``keys``; None where the way ends."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping below ``keys``; an empty one where there is none."""
    found = dig(value, *keys)
    return found if isinstance(found, Mapping) else {}


def listed(value: Any, *keys: str) -> list[tuple[int, Mapping[str, Any]]]:
    """The mappings of the list below ``keys``, each with its index."""
    found = dig(value, *keys)
    items = enumerate(found) if isinstance(found, list) else ()
    return [(index, one) for index, one in items if isinstance(one, Mapping)]


def named(value: Any) -> str:
    """An object's name; "": it has none."""
    return str(dig(value, "metadata", "name") or "")


def containers(pods: Pods) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every container of a pod with its place, those of its start among them."""
    for key in ("initContainers", "containers"):
        for index, one in listed(pods.spec, key):
            yield join(pods.place, [key, index]), one


def pods_of(document: Any) -> Iterator[Pods]:
    """What pods come of an object."""
    if dig(document, "kind") == RAY_SERVICE:
        yield from ray_pods(document)
    elif dig(document, "kind") == "Pod":
        labels = mapping(document, "metadata", "labels")
        yield Pods("spec", labels, mapping(document, "spec"), of_ray=False)
    elif mapping(document, "spec", "template", "spec"):
        yield _pods(document["spec"], "spec", {}, of_ray=False)


def ray_pods(service: Any) -> Iterator[Pods]:
    """The head's and each worker group's pods."""
    cluster = mapping(service, "spec", "rayClusterConfig")
    head = mapping(cluster, "headGroupSpec")
    yield _pods(head, f"{CLUSTER}.headGroupSpec", {NODE_TYPE: "head", GROUP: "headgroup"}, True)
    for index, group in listed(cluster, "workerGroupSpecs"):
        place = join(CLUSTER, ["workerGroupSpecs", index])
        yield _pods(group, place, {NODE_TYPE: "worker", GROUP: group.get("groupName")}, True)


def _pods(group: Mapping[str, Any], place: str, added: dict[str, Any], of_ray: bool) -> Pods:
    template = mapping(group, "template")
    kuberays = OF_KUBERAY if of_ray else {}
    own = {**kuberays, **mapping(template, "metadata", "labels"), **mapping(group, "labels")}
    labels = {**own, **added}
    return Pods(f"{place}.template.spec", labels, mapping(template, "spec"), of_ray)


def selects(selector: Any, pods: Pods) -> bool:
    """Does a label selector choose them, as far as their labels are known here?"""
    wanted = mapping(selector, "matchLabels")
    if not all(_may_be(pods, key, [value]) for key, value in wanted.items()):
        return False
    for _, one in listed(selector, "matchExpressions"):
        key, values = str(one.get("key")), one.get("values")
        operator = one.get("operator")
        values = values if isinstance(values, list) else []
        if operator == "In" and not _may_be(pods, key, values):
            return False
        if operator == "Exists" and not (key in pods.labels or _unknown(pods, key)):
            return False
        if operator == "NotIn" and key in pods.labels and pods.labels[key] in values:
            return False
        if operator == "DoesNotExist" and key in pods.labels:
            return False
    return True


def _may_be(pods: Pods, key: str, values: list[Any]) -> bool:
    return pods.labels.get(key) in values or _unknown(pods, key)


def _unknown(pods: Pods, key: str) -> bool:
    return pods.of_ray and key in UNKNOWN_LABELS
