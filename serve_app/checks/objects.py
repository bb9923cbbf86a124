"""Access to plain data by place, and the pods of a RayService."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.validation import join

RAY_SERVICE = "RayService"
CLUSTER = "spec.rayClusterConfig"


@dataclass(frozen=True)
class Pods:
    """Pods of Ray that are alike.

    Args:
        place: of their spec in the object.
        spec: a pod's; empty if it is not a mapping.
    """

    place: str
    spec: Mapping[str, Any]
    is_head: bool


def dig(value: Any, *keys: str) -> Any:
    """The value below ``keys``; None: there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping below ``keys``; empty if there is none."""
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


def ray_pods(service: Any) -> Iterator[Pods]:
    """The head's and each worker group's pods."""
    cluster = mapping(service, "spec", "rayClusterConfig")
    head = mapping(cluster, "headGroupSpec", "template", "spec")
    yield Pods(f"{CLUSTER}.headGroupSpec.template.spec", head, is_head=True)
    for index, group in listed(cluster, "workerGroupSpecs"):
        place = join(CLUSTER, ["workerGroupSpecs", index])
        spec = mapping(group, "template", "spec")
        yield Pods(f"{place}.template.spec", spec, is_head=False)
