"""What an API server or ``ray start`` refuses of objects and pods beyond their fields' shape.

And what takes effect, but against the pods that it is for: selectors, network policies.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from controller.validation import join, unknown_key
from serve_app.checks.objects import (
    CLUSTER,
    NODE_TYPE,
    Pods,
    containers,
    dig,
    listed,
    mapping,
    selects,
)
from serve_app.checks.values import line

Object = Mapping[str, Any]
Found = Iterator[tuple[Object, str]]
GPU = "nvidia.com/gpu"
DASHBOARD = 8265
ONE_OF: dict[str, tuple[str, ...]] = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "effect": ("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "operator": ("Exists", "Equal", "Lt", "Gt"),
}
UNITS = {
    "": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3,
    "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60,
}  # fmt: skip
QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)")


def pod_problems(pods: Pods) -> Iterator[str]:
    """What is wrong with a pod's fields by themselves."""
    yield from _one_of(pods.spec, "restartPolicy", pods.place)
    for index, toleration in listed(pods.spec, "tolerations"):
        for key in ("effect", "operator"):
            yield from _one_of(toleration, key, join(pods.place, ["tolerations", index]))
    for place, container in containers(pods):
        yield from _one_of(container, "imagePullPolicy", place)
        limits = mapping(container, "resources", "limits")
        for name, asked in mapping(container, "resources", "requests").items():
            least, most = _amount(asked), _amount(limits.get(name))
            if least is not None and most is not None and least > most:
                at = f"{place}.resources.requests.{name}"
                yield line(at, asked, f"the limit is {limits[name]}, and Kubernetes takes no more")


def start_problems(service: Object) -> Iterator[str]:
    """Keys of ``rayStartParams`` that ``ray start`` does not know: no pod of theirs would run."""
    cluster = mapping(service, "spec", "rayClusterConfig")
    groups = [("headGroupSpec", mapping(cluster, "headGroupSpec"))]
    groups += [(join("workerGroupSpecs", [n]), g) for n, g in listed(cluster, "workerGroupSpecs")]
    for place, group in groups:
        for key in mapping(group, "rayStartParams"):
            if key not in _start_options():
                at = f"{CLUSTER}.{place}.rayStartParams"
                yield unknown_key(at, str(key), _start_options())
        yield from _more_cards(group, f"{CLUSTER}.{place}.rayStartParams.num-gpus")


def _more_cards(group: Object, place: str) -> Iterator[str]:
    """Ray told of more cards than its container gets: replicas would share them unasked."""
    told = mapping(group, "rayStartParams").get("num-gpus")
    for _, ray in listed(group, "template", "spec", "containers")[:1]:
        has, says = _amount(mapping(ray, "resources", "limits").get(GPU)), _amount(told)
        if has is not None and says is not None and says > has:
            yield line(place, told, f"Ray's container has {has:g} by its limit of {GPU}")


def service_problems(one: Object, pods: list[Pods]) -> Found:
    """A Service that leads to no pod, or to a port that they have not."""
    selector = mapping(one, "spec", "selector")
    chosen = [group for group in pods if selects({"matchLabels": selector}, group)]
    if selector and pods and not chosen:
        told = ", ".join(f"{key}={value}" for key, value in selector.items())
        yield one, f"spec.selector: chooses no pod of this manifest ({told})"
    names = {
        str(port.get("name"))
        for group in chosen
        for _, container in containers(group)
        for _, port in listed(container, "ports")
    }
    for index, port in listed(one, "spec", "ports"):
        target = port.get("targetPort")
        if chosen and isinstance(target, str) and target not in names:
            told = ", ".join(sorted(names)) or "none"
            at = join("spec.ports", [index, "targetPort"])
            yield one, line(at, target, f"the pods have ports of the names {told}")


def template_problems(one: Object) -> Found:
    """A Deployment or the like whose selector is not of its own pods, which Kubernetes refuses."""
    labels = mapping(one, "spec", "template", "metadata", "labels")
    for key, value in mapping(one, "spec", "selector", "matchLabels").items():
        if labels.get(key) != value:
            at = f"spec.selector.matchLabels.{key}"
            yield one, line(at, value, f"spec.template.metadata.labels has {labels.get(key)!r}")


def policy_problems(one: Object, policies: list[Object], pods: list[Pods]) -> Found:
    """A network policy that keeps Ray's pods from each other, or from a name server.

    Args:
        policies: all of the manifest: what one lets in is let in.
    """
    chosen = [group for group in pods if group.of_ray and _of(one, group)]
    if not chosen:
        return
    if holds_back(one, "Ingress"):
        for group in chosen:
            for other in (other for other in pods if other.of_ray):
                if not any(_lets(policy, group, other) for policy in policies):
                    told = f"spec.ingress: keeps {_name(other)} from {_name(group)}"
                    yield one, f"{told}; a rule without ports has to let Ray's own pods in"
                    return
    if holds_back(one, "Egress") and not any(_goes_out(policy) for policy in policies):
        yield one, "spec.egress: lets nothing out: Ray's pods would find neither names nor the head"


def closed_ports(
    one: Object, policies: list[Object], pods: list[Pods], serve: set[Any]
) -> Iterator[str]:
    """A note on each port of Ray's pods that a network policy keeps from all but themselves.

    Args:
        policies: all of the manifest; one that is elsewhere may let somebody in.
        serve: the ports of Serve's proxies.
    """
    ray = [group for group in pods if group.of_ray]
    wanted = {DASHBOARD: "KubeRay's operator deploys Serve's configuration there"}
    for port, why in (wanted | dict.fromkeys(serve, "requests come there")).items():
        for group in ray:
            asked = port != DASHBOARD or group.labels[NODE_TYPE] == "head"
            if asked and _of(one, group) and not any(_opens(p, group, port, ray) for p in policies):
                yield f"spec.ingress: lets nobody else to port {port} of {_name(group)}, and {why}"
                break


def _opens(policy: Object, to: Pods, port: Any, ray: list[Pods]) -> bool:
    """Whether a rule of a policy lets somebody to a port of a pod who is none of Ray's pods."""
    declared = [one for _, c in containers(to) for _, one in listed(c, "ports")]
    names = [one.get("name") for one in declared if one.get("containerPort") == port]
    for _, rule in listed(policy, "spec", "ingress") if _of(policy, to) else ():
        ports = [(one.get("port"), one.get("endPort")) for _, one in listed(rule, "ports")]
        peers = [peer for _, peer in listed(rule, "from")]
        own = [
            bool(chosen := peer.get("podSelector")) and any(selects(chosen, one) for one in ray)
            for peer in peers
            if not peer.keys() & {"ipBlock", "namespaceSelector"}
        ]
        at_port = not ports or any(
            first in (None, port, *names)
            or (isinstance(first, int) and isinstance(last, int) and first <= port <= last)
            for first, last in ports
        )
        if at_port and (not peers or len(own) < len(peers) or not all(own)):
            return True
    return False


def holds_back(policy: Object, kind: str) -> bool:
    """Whether a network policy is about what comes in (``Ingress``) or goes out (``Egress``)."""
    types = dig(policy, "spec", "policyTypes")
    return kind in (types if isinstance(types, list) else ["Ingress"])


def _lets(policy: Object, to: Pods, come: Pods) -> bool:
    if not _of(policy, to):
        return False
    for _, rule in listed(policy, "spec", "ingress"):
        peers = listed(rule, "from")
        if not rule.get("ports") and (
            not peers
            or any(
                "ipBlock" in peer or selects(mapping(peer, "podSelector"), come)
                for _, peer in peers
            )
        ):
            return True
    return False


def _goes_out(policy: Object) -> bool:
    return bool(listed(policy, "spec", "egress"))


def _of(policy: Object, group: Pods) -> bool:
    return selects(mapping(policy, "spec", "podSelector"), group)


def _name(group: Pods) -> str:
    return group.place.removeprefix(f"{CLUSTER}.").removesuffix(".template.spec")


def _one_of(value: Object, key: str, place: str) -> Iterator[str]:
    if (given := value.get(key)) is not None and given not in ONE_OF[key]:
        yield line(f"{place}.{key}", given, f"must be one of {', '.join(ONE_OF[key])}")


def _amount(value: Any) -> float | None:
    """A quantity of Kubernetes; None: it is none, which its schema says."""
    found = QUANTITY.fullmatch(str(value))
    if found is None or found[2] not in UNITS:
        return None
    try:
        return float(found[1]) * UNITS[found[2]]
    except ValueError:
        return None


@cache
def _start_options() -> frozenset[str]:
    """Options of this Ray's ``ray start``, which KubeRay hands them to."""
    from ray.scripts.scripts import start

    return frozenset(name.removeprefix("--") for one in start.params for name in one.opts)
