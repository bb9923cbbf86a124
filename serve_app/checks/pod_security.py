"""Would Pod Security's profile ``restricted`` take a pod?

Source: the Pod Security Standards of Kubernetes, as far as a pod of ours can break them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from controller.validation import join
from serve_app.checks.objects import CLUSTER, Pods, containers, dig, listed, mapping, pods_of
from serve_app.checks.values import line

VOLUMES = (
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral"),
    *("persistentVolumeClaim", "projected", "secret"),
)
HOSTS = ("hostNetwork", "hostPID", "hostIPC")
SECCOMP = ("RuntimeDefault", "Localhost")
ADDED = ("NET_BIND_SERVICE",)


def restricted_problems(document: Any) -> list[str]:
    """A line for each thing for which ``restricted`` would refuse the pods of an object."""
    found = [problem for pods in pods_of(document) for problem in _pod(pods)]
    if dig(document, "spec", "rayClusterConfig", "enableInTreeAutoscaling"):
        # KubeRay adds the autoscaler's container to the head's pod, which speaks for it otherwise.
        options = mapping(document, "spec", "rayClusterConfig", "autoscalerOptions")
        head = mapping(document, "spec", "rayClusterConfig", "headGroupSpec", "template", "spec")
        place = f"{CLUSTER}.autoscalerOptions"
        found += _container(options, mapping(head, "securityContext"), place)
    return found


def _pod(pods: Pods) -> Iterator[str]:
    for key in HOSTS:
        if pods.spec.get(key):
            yield line(f"{pods.place}.{key}", True, "a pod has no part in its host's")
    for index, volume in listed(pods.spec, "volumes"):
        for kind in sorted(map(str, volume.keys() - {"name", *VOLUMES})):
            place = join(pods.place, ["volumes", index])
            yield f"{place}.{kind}: no such volume; one of {', '.join(VOLUMES)}"
    for place, container in containers(pods):
        yield from _container(container, mapping(pods.spec, "securityContext"), place)


def _container(
    container: Mapping[str, Any], of_pod: Mapping[str, Any], place: str
) -> Iterator[str]:
    own, place = mapping(container, "securityContext"), f"{place}.securityContext"
    if own.get("privileged"):
        yield line(f"{place}.privileged", True, "must be false")
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{place}.allowPrivilegeEscalation: must be false"
    for index, port in listed(container, "ports"):
        if port.get("hostPort"):
            held = join(place.removesuffix(".securityContext"), ["ports", index, "hostPort"])
            yield line(held, port["hostPort"], "a pod takes no port of its host")
    dropped, added = (dig(own, "capabilities", key) for key in ("drop", "add"))
    if not isinstance(dropped, list) or "ALL" not in dropped:
        yield f"{place}.capabilities.drop: must hold ALL"
    for capability in added if isinstance(added, list) else []:
        if capability not in ADDED:
            yield line(f"{place}.capabilities.add", capability, f"only {ADDED[0]} may be added")
    if not own.get("runAsNonRoot", of_pod.get("runAsNonRoot")):
        yield f"{place}.runAsNonRoot: must be true, here or for the pod"
    if own.get("runAsUser", of_pod.get("runAsUser")) == 0:
        yield line(f"{place}.runAsUser", 0, "must not be root")
    profile = dig(own, "seccompProfile", "type") or dig(of_pod, "seccompProfile", "type")
    if profile not in SECCOMP:
        yield f"{place}.seccompProfile.type: must be {' or '.join(SECCOMP)}, here or for the pod"
