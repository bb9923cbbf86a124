"""Check the Ray containers of a RayService: that they exist, and that all run in one environment.

Ray Serve reads its switches in every process, so a container that lacks one of them behaves
otherwise than the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.validation import join
from serve_app.checks.findings import Findings
from serve_app.checks.objects import CLUSTER
from serve_app.checks.values import line
from serve_app.environment import DIRECT_STREAMING, HA_PROXY

SWITCHES = (HA_PROXY, DIRECT_STREAMING)
ON_OFF = ("0", "1")


@dataclass(frozen=True)
class RayContainer:
    """The first container of a pod template: the one KubeRay starts Ray in.

    Args:
        env: values by name; None where Kubernetes fills the value in.
        open_env: more variables come from a ConfigMap or Secret.
    """

    place: str
    env: Mapping[str, str | None]
    open_env: bool


def ray_containers(
    cluster: Mapping[str, Any], where: str, findings: Findings
) -> list[RayContainer]:
    """Ray's container of the head and of each worker group, the head's first."""
    found = []
    for place, group in _groups(cluster, where):
        template = f"{place}.template.spec.containers"
        listed = _at(group, "template", "spec", "containers")
        if listed is None:
            findings.add([f"{template}: required key is missing"])
        if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict):
            if listed == []:
                findings.add([f"{template}: must hold the container that Ray runs in"])
            continue
        container, inner = listed[0], join(template, [0])
        if not container.get("image"):
            findings.add([f"{inner}.image: required key is missing"])
        found.append(RayContainer(inner, _env(container), bool(container.get("envFrom"))))
    return found


def _env(container: Mapping[str, Any]) -> dict[str, Any]:
    """Values by name; what is no list of mappings is named by the check of the schema."""
    listed = container.get("env")
    pairs = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return {str(item.get("name")): item.get("value") for item in pairs}


def check_switches(containers: list[RayContainer], findings: Findings) -> None:
    """Both switches stand in every Ray container, as "0" or "1", with the head's value; or in none,
    which is Ray's plain ingress.
    """
    if not any(one.open_env or one.env.keys() & set(SWITCHES) for one in containers):
        findings.notes.append(
            f"{CLUSTER}: Ray's plain ingress answers, whose Python is in the way of every token;"
            f' for direct streaming, the default way in, set {" and ".join(SWITCHES)} to "1" in the'
            ' env of every Ray container (to "0", and this is not said)'
        )
        return
    for switch in SWITCHES:
        for container in containers:
            place = f"{container.place}.env"
            value = container.env.get(switch)
            if switch not in container.env:
                _missing(container, switch, place, findings)
            elif value is not None and value not in ON_OFF:
                findings.add([line(f"{place}.{switch}", value, 'must be "0" or "1"')])
            elif (head := containers[0].env.get(switch)) in ON_OFF and value not in (None, head):
                findings.add(
                    [line(f"{place}.{switch}", value, f'the head has "{head}": must be the same')]
                )


def _missing(container: RayContainer, switch: str, place: str, findings: Findings) -> None:
    if container.open_env:
        findings.notes.append(f"{place}: {switch} has to come from envFrom, which is not read")
        return
    findings.add(
        [
            f'{place}: {switch} is missing; set it to "1" for direct streaming, the default way'
            ' in, or to "0" for the plain ingress'
        ]
    )


def _groups(cluster: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    if "headGroupSpec" in cluster:
        yield f"{where}.headGroupSpec", cluster["headGroupSpec"]
    workers = cluster.get("workerGroupSpecs")
    for index, group in enumerate(workers if isinstance(workers, list) else []):
        yield join(where, ["workerGroupSpecs", index]), group


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
