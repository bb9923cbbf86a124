"""What stands at a place of plain data, and the pods that an object of Kubernetes' stands for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.validation import join

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


def pods_of(document: Any) -> Iterator[Pods]:
    """What pods come of an object."""
    if dig(document, "kind") == RAY_SERVICE:
        yield from ray_pods(document)
    elif dig(document, "kind") == "Pod":
        yield _pods({"template": document}, "", {})
    elif mapping(document, "spec", "template", "spec"):
        yield _pods(document["spec"], "spec", {})


def ray_pods(service: Any) -> Iterator[Pods]:
    """The head's and each worker group's pods."""
    cluster = mapping(service, "spec", "rayClusterConfig")
    head = mapping(cluster, "headGroupSpec")
    added: dict[str, Any] = {**OF_KUBERAY, NODE_TYPE: "head", GROUP: "headgroup"}
    yield _pods(head, f"{CLUSTER}.headGroupSpec", added)
    for index, group in listed(cluster, "workerGroupSpecs"):
        added = {**OF_KUBERAY, NODE_TYPE: "worker", GROUP: group.get("groupName")}
        yield _pods(group, join(CLUSTER, ["workerGroupSpecs", index]), added)


def _pods(group: Mapping[str, Any], place: str, added: dict[str, Any]) -> Pods:
    template = mapping(group, "template")
    own = {**mapping(template, "metadata", "labels"), **mapping(group, "labels")}
    labels = {**added, **own, **{key: added[key] for key in (NODE_TYPE, GROUP) if key in added}}
    return Pods(f"{place}.template.spec", labels, mapping(template, "spec"), bool(added))


def selects(selector: Any, pods: Pods) -> bool:
    """Does a label selector choose them? What is not known here, as of an expression, may."""
    unknown = UNKNOWN_LABELS if pods.of_ray else ()
    wanted = mapping(selector, "matchLabels").items()
    return all(pods.labels.get(key) == value or key in unknown for key, value in wanted)
