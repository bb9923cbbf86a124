"""Ray's containers of a RayService: that all run in one environment.

Ray Serve reads its switches in every process, so a container that lacks one of them behaves
otherwise than the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.checks.findings import Findings
from serve_app.checks.objects import CLUSTER, listed, ray_pods
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
    env: Mapping[str, Any]
    open_env: bool


def ray_containers(service: Mapping[str, Any]) -> list[RayContainer]:
    """Ray's container of the head and of each worker group, the head's first."""
    found = []
    for pods in ray_pods(service):
        for index, container in listed(pods.spec, "containers")[:1]:
            env = {str(one.get("name")): one.get("value") for _, one in listed(container, "env")}
            place = f"{pods.place}.containers[{index}]"
            found.append(RayContainer(place, env, bool(container.get("envFrom"))))
    return found


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
            place, value = f"{container.place}.env", container.env.get(switch)
            head = containers[0].env.get(switch)
            if switch in container.env:
                if value is not None and value not in ON_OFF:
                    findings.add([line(f"{place}.{switch}", value, 'must be "0" or "1"')])
                elif None not in (value, head) and value != head in ON_OFF:
                    why = f'the head has "{head}": must be the same'
                    findings.add([line(f"{place}.{switch}", value, why)])
            elif container.open_env:
                findings.notes.append(
                    f"{place}: {switch} has to come from envFrom, which is not read"
                )
            else:
                findings.add(
                    [
                        f'{place}: {switch} is missing; set it to "1" for direct streaming, the'
                        ' default way in, or to "0" for the plain ingress'
                    ]
                )
