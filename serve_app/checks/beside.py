"""What stands in one manifest beside a RayService: does each name what another one has?

An object that is not in the manifest may be in the cluster, so only a name that nearly is one of
the manifest's is a mistake. What an API server or KubeRay refuses by itself is left to them.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from controller.validation import join, shown, unknown_key
from serve_app.checks.clocks import Longest, object_clocks
from serve_app.checks.objects import (
    CLUSTER,
    NODE_TYPE,
    RAY_SERVICE,
    Pods,
    containers,
    dig,
    listed,
    mapping,
    named,
    pods_of,
    ray_pods,
    selects,
)
from serve_app.checks.proxies import HEAD_ONLY
from serve_app.checks.routed import (
    ROUTES,
    backends,
    listening,
    serve_config,
    serve_port,
    service_ports,
)
from serve_app.checks.values import line

DASHBOARD = 8265
POLICY = "NetworkPolicy"
REDIS = f"{CLUSTER}.gcsFaultToleranceOptions.redisAddress"
# By kind: where a selector of pods stands.
SELECTORS = {
    POLICY: "podSelector",
    **dict.fromkeys(("PodDisruptionBudget", "PodMonitor", "Service"), "selector"),
}
# A key with the name of another object, and a key whose mapping has it as ``name``; with its kind.
REFERENCES = {
    "priorityClassName": "PriorityClass",
    "claimName": "PersistentVolumeClaim",
    "secretName": "Secret",
}
HOLDERS = {
    **dict.fromkeys(("secretKeyRef", "secretRef"), "Secret"),
    **dict.fromkeys(("configMapKeyRef", "configMapRef", "configMap"), "ConfigMap"),
    "parentRefs": "Gateway",
}
Object = Mapping[str, Any]


def relation_problems(one: Object, objects: Sequence[Object]) -> Iterator[str]:
    """What an object says of the others of its manifest that does not hold."""
    kind = str(one.get("kind"))
    pods = [group for other in objects for group in pods_of(other)]
    chosen: list[Pods] = []
    if key := SELECTORS.get(kind):
        selector = mapping(one, "spec", key)
        selector = {"matchLabels": selector} if kind == "Service" else selector
        chosen = [group for group in pods if selects(selector, group)]
        if any(selector.values()) and pods and not chosen:
            wanted = mapping(selector, "matchLabels")
            told = ", ".join(f"{name}={value}" for name, value in wanted.items())
            yield f"spec.{key}: chooses no pod of this manifest ({told or 'matchExpressions'})"
    if check := CHECKS.get(kind):
        yield from check(one, objects, chosen)
    names: dict[str, set[str]] = {}
    for other in objects:
        names.setdefault(str(other.get("kind")), set()).add(named(other))
    yield from _references(one.get("spec"), names, "spec", ("spec",))


def relation_notes(one: Object, objects: Sequence[Object], answer: Longest) -> Iterator[str]:
    """What may be wrong with an object beside the others, or is there to know.

    Args:
        answer: the longest of the manifest's models.
    """
    yield from object_clocks(one, objects, answer)
    here = service_ports(objects)
    for place, name, _ in backends(one):
        if name not in here and not [*_near(place, name, here)]:
            told = ", ".join(sorted(here))
            yield f"{place}: {shown(name)} is no Service of this manifest ({told})"
    if one.get("kind") == POLICY and _is_about(one, "Ingress"):
        yield from _closed_ports(one, objects)


def _references(
    value: Any, names: Mapping[str, set[str]], holder: str, place: tuple[str | int, ...]
) -> Iterator[str]:
    """Names of other objects, however deep they stand."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _references(item, names, holder, (*place, index))
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        kind = HOLDERS.get(holder) if key == "name" else REFERENCES.get(key)
        if kind:
            yield from _near(join("", (*place, key)), inner, names.get(kind, ()))
        yield from _references(inner, names, str(key), (*place, key))


def _near(place: str, name: Any, known: Iterable[str]) -> Iterator[str]:
    """A name that is none of the manifest's, but nearly so."""
    if not isinstance(name, str) or name in known:
        return
    if close := difflib.get_close_matches(name, [one for one in known if one], 1, cutoff=0.8):
        yield f"{place}: {shown(name)} is not in this manifest; did you mean {close[0]!r}?"


def _budget(one: Object, objects: Sequence[Object], chosen: list[Pods]) -> Iterator[str]:
    why = "no scale belongs to Ray's pods, so Kubernetes takes minAvailable, as a number, alone"
    for key in ("maxUnavailable", "minAvailable") if any(group.of_ray for group in chosen) else ():
        value = dig(one, "spec", key)
        if value is not None and (key == "maxUnavailable" or not isinstance(value, int)):
            yield line(f"spec.{key}", value, why)


def _monitor(one: Object, objects: Sequence[Object], chosen: list[Pods]) -> Iterator[str]:
    for index, endpoint in listed(one, "spec", "podMetricsEndpoints"):
        place = join("spec.podMetricsEndpoints", [index, "port"])
        yield from _by_name(place, endpoint.get("port"), chosen)


def _by_name(place: str, port: Any, chosen: list[Pods]) -> Iterator[str]:
    names = {str(one["name"]) for one in _ports(chosen) if "name" in one}
    if chosen and isinstance(port, str) and port not in names:
        told = ", ".join(sorted(names)) or "none"
        yield line(place, port, f"the pods have ports of the names {told}")


def _ports(chosen: Iterable[Pods]) -> list[Object]:
    held = [one for group in chosen for _, one in containers(group)]
    return [port for one in held for _, port in listed(one, "ports")]


def _route(one: Object, objects: Sequence[Object], chosen: list[Pods]) -> Iterator[str]:
    ports = service_ports(objects)
    for place, name, port in backends(one):
        key = "host" if place.endswith("destination") else "name"
        yield from _near(f"{place}.{key}", name, ports)
        if name in ports and port is not None and str(port) not in ports[name]:
            alike = [each for each in ports[name] if each.isdigit() == isinstance(port, int)]
            told = " or ".join(sorted(alike or ports[name]))
            yield line(f"{place}.port", port, f"Service {name} has port {told}")


def _service(one: Object, objects: Sequence[Object], chosen: list[Pods]) -> Iterator[str]:
    """A Service of the user's own: it leads to a port of its pods, and to a proxy."""
    selector = {"matchLabels": mapping(one, "spec", "selector")}
    services = [other for other in objects if other.get("kind") == RAY_SERVICE]
    services = [one for one in services if any(selects(selector, each) for each in ray_pods(one))]
    of_ray = bool(chosen) and all(group.of_ray for group in chosen)
    held = [(port.get("name"), port.get("containerPort")) for port in _ports(chosen)]
    declared = {number for _, number in held if isinstance(number, int)}
    known = {str(number) for number in declared}.union(*map(listening, services))
    serve = list(map(serve_port, services))
    no_proxy = all(dig(serve_config(one), "proxy_location") == HEAD_ONLY for one in services)
    no_proxy &= all(group.labels.get(NODE_TYPE) == "worker" for group in chosen)
    for index, port in listed(one, "spec", "ports"):
        key = "targetPort" if "targetPort" in port else "port"
        target, place = port.get(key), join("spec.ports", [index, key])
        yield from _by_name(place, target, chosen)
        if of_ray and isinstance(target, int) and declared and str(target) not in known:
            told = ", ".join(map(str, sorted(declared)))
            yield line(place, target, f"the pods have ports {told}; set targetPort")
        goes_to = [target, *(number for name, number in held if name == target)]
        if of_ray and no_proxy and any(one in serve for one in goes_to):
            yield line(place, target, f"with proxy_location {HEAD_ONLY} no worker has a proxy")


def _scaler(one: Object, objects: Sequence[Object], chosen: list[Pods]) -> Iterator[str]:
    if (kind := dig(one, "spec", "scaleTargetRef", "kind")) == RAY_SERVICE:
        why = "it has no scale; deployment_config.autoscaling_config adds replicas"
        yield line("spec.scaleTargetRef.kind", kind, why)


def _ray_service(one: Object, objects: Sequence[Object], chosen: list[Pods]) -> Iterator[str]:
    """Redis, where it is one of this manifest's Services; what Ray is started with."""
    cluster = mapping(one, "spec", "rayClusterConfig")
    groups = [("headGroupSpec", mapping(cluster, "headGroupSpec"))]
    groups += [(join("workerGroupSpecs", [n]), g) for n, g in listed(cluster, "workerGroupSpecs")]
    for place, group in groups:
        for key in mapping(group, "rayStartParams"):
            if key not in _start_options():
                at = f"{CLUSTER}.{place}.rayStartParams"
                yield unknown_key(at, str(key), _start_options())
    address = mapping(cluster, "gcsFaultToleranceOptions").get("redisAddress")
    host, _, port = str(address or "").rpartition("://")[2].partition(":")
    ports = {
        named(other): {str(p.get("port")) for _, p in listed(other, "spec", "ports")}
        for other in objects
        if other.get("kind") == "Service"
    }
    name = host.split(".")[0]
    yield from _near(REDIS, name, ports)
    if name in ports and (port or "6379") not in ports[name]:
        yield line(REDIS, address, f"Service {name} has port {' or '.join(sorted(ports[name]))}")


@cache
def _start_options() -> frozenset[str]:
    """Options of this Ray's ``ray start``, which KubeRay hands them to."""
    from ray.scripts.scripts import start

    return frozenset(name.removeprefix("--") for one in start.params for name in one.opts)


def _policy(one: Object, objects: Sequence[Object], chosen: list[Pods]) -> Iterator[str]:
    """A network policy that keeps Ray's pods from each other, or from a name server."""
    own = [group for group in chosen if group.of_ray]
    ray = _of_ray(objects)
    apart = [(to, come) for to in own for come in ray if not _lets(objects, to, come)]
    if apart and _is_about(one, "Ingress"):
        to, come = apart[0]
        told = f"spec.ingress: keeps {_name(come)} from {_name(to)}"
        yield f"{told}; a rule without ports has to let Ray's own pods in"
    out = any(listed(policy, "spec", "egress") for policy in _policies(objects))
    if own and not out and _is_about(one, "Egress"):
        yield "spec.egress: lets nothing out: Ray's pods would find neither names nor the head"


def _closed_ports(one: Object, objects: Sequence[Object]) -> Iterator[str]:
    """A note on each port of Ray's pods that the manifest's policies keep from all but themselves.

    A policy that is elsewhere may let somebody in.
    """
    ray = _of_ray(objects)
    chosen = [group for group in ray if selects(mapping(one, "spec", "podSelector"), group)]
    wanted = {DASHBOARD: "KubeRay's operator deploys Serve's configuration there"}
    serve = {serve_port(other) for other in objects if other.get("kind") == RAY_SERVICE}
    for port, why in (wanted | dict.fromkeys(serve, "requests come there")).items():
        for group in chosen:
            asked = port != DASHBOARD or group.labels[NODE_TYPE] == "head"
            if asked and not any(_opens(rule, group, port, ray) for rule in _rules(objects, group)):
                yield f"spec.ingress: lets nobody else to port {port} of {_name(group)}, and {why}"
                break


def _opens(rule: Object, to: Pods, port: Any, ray: list[Pods]) -> bool:
    """Whether a rule lets somebody to a port of a pod who is none of Ray's pods."""
    names = [one.get("name") for one in _ports([to]) if one.get("containerPort") == port]
    ports = [(one.get("port"), one.get("endPort")) for _, one in listed(rule, "ports")]
    at_port = not ports or any(
        first in (None, port, *names)
        or (isinstance(first, int) and isinstance(last, int) and first <= port <= last)
        for first, last in ports
    )
    peers = [peer for _, peer in listed(rule, "from")]
    others = [
        peer.keys() & {"ipBlock", "namespaceSelector"}
        or not peer.get("podSelector")
        or not any(selects(peer["podSelector"], one) for one in ray)
        for peer in peers
    ]
    return at_port and (not peers or any(others))


def _lets(objects: Sequence[Object], to: Pods, come: Pods) -> bool:
    """Whether a rule lets a pod of Ray to all ports of another."""
    for rule in _rules(objects, to):
        peers = [peer for _, peer in listed(rule, "from")]
        if not rule.get("ports") and (
            not peers
            or any("ipBlock" in p or selects(mapping(p, "podSelector"), come) for p in peers)
        ):
            return True
    return False


def _rules(objects: Sequence[Object], to: Pods) -> list[Object]:
    """What the manifest's policies let in to a pod."""
    policies = [p for p in _policies(objects) if selects(mapping(p, "spec", "podSelector"), to)]
    return [rule for policy in policies for _, rule in listed(policy, "spec", "ingress")]


def _policies(objects: Sequence[Object]) -> list[Object]:
    return [one for one in objects if one.get("kind") == POLICY]


def _of_ray(objects: Sequence[Object]) -> list[Pods]:
    return [group for one in objects for group in pods_of(one) if group.of_ray]


def _is_about(policy: Object, kind: str) -> bool:
    """Whether a network policy is about what comes in (``Ingress``) or goes out (``Egress``)."""
    types = dig(policy, "spec", "policyTypes")
    return kind in (types if isinstance(types, list) else ["Ingress"])


def _name(group: Pods) -> str:
    return group.place.removeprefix(f"{CLUSTER}.").removesuffix(".template.spec")


CHECKS: dict[str, Callable[[Object, Sequence[Object], list[Pods]], Iterator[str]]] = {
    "PodDisruptionBudget": _budget,
    POLICY: _policy,
    "PodMonitor": _monitor,
    **dict.fromkeys(("Ingress", *ROUTES), _route),
    **dict.fromkeys(("HorizontalPodAutoscaler", "ScaledObject"), _scaler),
    RAY_SERVICE: _ray_service,
    "Service": _service,
}
