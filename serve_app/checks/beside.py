"""What stands in one manifest beside a RayService: does each name what another one has?

An object that is not in the manifest may be in the cluster, so only a name that nearly is one of
the manifest's is a mistake.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.validation import join, shown
from serve_app.checks.clocks import Longest, object_clocks
from serve_app.checks.objects import (
    CLUSTER,
    NODE_TYPE,
    RAY_SERVICE,
    Pods,
    dig,
    listed,
    mapping,
    named,
    pods_of,
    ray_pods,
    selects,
)
from serve_app.checks.pod_security import restricted_problems
from serve_app.checks.proxies import HEAD_ONLY
from serve_app.checks.refused import (
    closed_ports,
    holds_back,
    pod_problems,
    policy_problems,
    service_problems,
    start_problems,
    template_problems,
)
from serve_app.checks.routed import (
    ROUTES,
    backends,
    listening,
    serve_config,
    serve_port,
    service_ports,
)
from serve_app.checks.values import line

ENFORCE = "pod-security.kubernetes.io/enforce"
FAULT_TOLERANCE = f"{CLUSTER}.gcsFaultToleranceOptions"
Object = Mapping[str, Any]
Found = Iterator[tuple[Object, str]]


def relation_problems(documents: list[Any]) -> list[tuple[Object, str]]:
    """Each contradiction between the objects of a manifest, with the object that it is in."""
    objects = [one for one in documents if isinstance(one, Mapping)]
    pods = [(one, group) for one in objects for group in pods_of(one)]
    found: list[tuple[Object, str]] = []
    for one in objects:
        if check := CHECKS.get(str(one.get("kind"))):
            found += check(one, objects, [group for _, group in pods])
    for one, group in pods:
        found += [(one, problem) for problem in _references(one, group, objects)]
        found += [(one, problem) for problem in pod_problems(group)]
    return found


def relation_notes(one: Object, objects: list[Object], answer: Longest) -> Iterator[str]:
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
    if one.get("kind") == "NetworkPolicy" and holds_back(one, "Ingress"):
        policies = [other for other in objects if other.get("kind") == "NetworkPolicy"]
        pods = [group for other in objects for group in pods_of(other)]
        serve = {serve_port(other) for other in objects if other.get("kind") == RAY_SERVICE}
        yield from closed_ports(one, policies, pods, serve)


def _budget(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    yield from _selector(one, "spec.selector", pods)
    chosen = [group for group in pods if selects(mapping(one, "spec", "selector"), group)]
    if not any(group.of_ray for group in chosen):
        return
    why = "no scale belongs to Ray's pods, so Kubernetes takes minAvailable, as a number, alone"
    for key in ("maxUnavailable", "minAvailable"):
        value = dig(one, "spec", key)
        if value is not None and (key == "maxUnavailable" or not isinstance(value, int)):
            yield one, line(f"spec.{key}", value, why)


def _policy(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    yield from _selector(one, "spec.podSelector", pods)
    policies = [other for other in objects if other.get("kind") == one.get("kind")]
    yield from policy_problems(one, policies, pods)


def _monitor(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    yield from _selector(one, "spec.selector", pods)
    chosen = [group for group in pods if selects(mapping(one, "spec", "selector"), group)]
    ports = {str(port["name"]) for group in chosen for port in _ports(group) if "name" in port}
    for index, endpoint in listed(one, "spec", "podMetricsEndpoints"):
        port = endpoint.get("port")
        if chosen and port is not None and str(port) not in ports:
            told = ", ".join(sorted(ports)) or "none"
            place = join("spec.podMetricsEndpoints", [index, "port"])
            yield one, line(place, port, f"the pods have ports of the names {told}")


def _selector(one: Object, place: str, pods: list[Pods]) -> Found:
    selector = mapping(one, *place.split("."))
    if selector and pods and not any(selects(selector, group) for group in pods):
        wanted = mapping(selector, "matchLabels")
        told = ", ".join(f"{key}={value}" for key, value in wanted.items())
        yield one, f"{place}: chooses no pod of this manifest ({told or 'matchExpressions'})"


def _ports(group: Pods) -> list[Object]:
    held = [one for _, one in listed(group.spec, "containers")]
    return [port for one in held for _, port in listed(one, "ports")]


def _route(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    gateways = {named(other) for other in objects if other.get("kind") == "Gateway"}
    for index, parent in listed(one, "spec", "parentRefs"):
        place = join("spec.parentRefs", [index, "name"])
        yield from ((one, told) for told in _near(place, parent.get("name"), gateways))
    ports = service_ports(objects)
    for place, name, port in backends(one):
        key = "host" if place.endswith("destination") else "name"
        yield from ((one, told) for told in _near(f"{place}.{key}", name, ports))
        if name in ports and port is not None and str(port) not in ports[name]:
            alike = [each for each in ports[name] if each.isdigit() == isinstance(port, int)]
            told = " or ".join(sorted(alike or ports[name]))
            yield one, line(f"{place}.port", port, f"Service {name} has port {told}")


def _service(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    """A Service of the user's own: it leads to pods, to a port of theirs, and to a proxy."""
    yield from service_problems(one, pods)
    selector = {"matchLabels": mapping(one, "spec", "selector")}
    chosen = [group for group in pods if selects(selector, group)] if any(selector.values()) else []
    if not chosen or not all(group.of_ray for group in chosen):
        return
    services = [other for other in objects if other.get("kind") == RAY_SERVICE]
    services = [one for one in services if any(selects(selector, each) for each in ray_pods(one))]
    serve = list(map(serve_port, services))
    held = [(one.get("name"), one.get("containerPort")) for g in chosen for one in _ports(g)]
    declared = {number for _, number in held if isinstance(number, int)}
    known = {str(number) for number in declared}.union(*map(listening, services))
    head_only = all(dig(serve_config(one), "proxy_location") == HEAD_ONLY for one in services)
    workers = all(group.labels[NODE_TYPE] == "worker" for group in chosen)
    for index, port in listed(one, "spec", "ports"):
        key = "targetPort" if "targetPort" in port else "port"
        target, place = port.get(key), join("spec.ports", [index, key])
        if isinstance(target, int) and declared and str(target) not in known:
            told = ", ".join(map(str, sorted(declared)))
            yield one, line(place, target, f"the pods have ports {told}; set targetPort")
        goes_to = [target, *(number for name, number in held if name == target)]
        if head_only and workers and any(one in serve for one in goes_to):
            yield one, line(place, target, f"with proxy_location {HEAD_ONLY} no worker has a proxy")


def _scaler(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    if (kind := dig(one, "spec", "scaleTargetRef", "kind")) == RAY_SERVICE:
        why = "it has no scale; deployment_config.autoscaling_config adds replicas"
        yield one, line("spec.scaleTargetRef.kind", kind, why)


def _ray_service(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    """Redis, where it is one of this manifest's Services; what Ray is started with."""
    yield from ((one, told) for told in start_problems(one))
    options = mapping(one, "spec", "rayClusterConfig", "gcsFaultToleranceOptions")
    host, _, port = str(options.get("redisAddress", "")).rpartition("://")[2].partition(":")
    ports = {
        named(other): {str(p.get("port")) for _, p in listed(other, "spec", "ports")}
        for other in objects
        if other.get("kind") == "Service"
    }
    place, name = f"{FAULT_TOLERANCE}.redisAddress", host.split(".")[0]
    yield from ((one, told) for told in _near(place, name, ports))
    if name in ports and (port or "6379") not in ports[name]:
        told = " or ".join(sorted(ports[name]))
        yield one, line(place, options.get("redisAddress"), f"Service {name} has port {told}")
    for key in ("redisPassword", "redisUsername"):
        secret = mapping(options, key, "valueFrom", "secretKeyRef")
        at = f"{FAULT_TOLERANCE}.{key}.valueFrom.secretKeyRef"
        yield from ((one, told) for told in _secret_key(secret, at, objects))


def _namespace(one: Object, objects: list[Object], pods: list[Pods]) -> Found:
    if mapping(one, "metadata", "labels").get(ENFORCE) != "restricted":
        return
    for other in objects:
        if dig(other, "metadata", "namespace") == named(one):
            for problem in restricted_problems(other):
                yield other, f"{problem} (namespace {named(one)} enforces Pod Security restricted)"


def _references(one: Object, group: Pods, objects: list[Object]) -> Iterator[str]:
    """Names that a pod's spec takes from elsewhere."""
    name, place = group.spec.get("priorityClassName"), f"{group.place}.priorityClassName"
    yield from _near(place, name, _names(objects, "PriorityClass"))
    for index, volume in listed(group.spec, "volumes"):
        at = join(group.place, ["volumes", index])
        claim = dig(volume, "persistentVolumeClaim", "claimName")
        claims = _names(objects, "PersistentVolumeClaim")
        yield from _near(f"{at}.persistentVolumeClaim.claimName", claim, claims)
        for kind, key in (("Secret", "secretName"), ("ConfigMap", "name")):
            told = dig(volume, kind[0].lower() + kind[1:], key)
            yield from _near(f"{at}.{key}", told, _names(objects, kind))
    volumes = {str(volume.get("name")) for _, volume in listed(group.spec, "volumes")}
    for number, container in listed(group.spec, "containers"):
        at = join(group.place, ["containers", number])
        for index, env in listed(container, "env"):
            secret = mapping(env, "valueFrom", "secretKeyRef")
            held = join(at, ["env", index, "valueFrom", "secretKeyRef"])
            yield from _secret_key(secret, held, objects)
        for index, mount in listed(container, "volumeMounts"):
            name = mount.get("name")
            if isinstance(name, str) and name not in volumes and not _claimed(one, name):
                told = ", ".join(sorted(volumes)) or "none"
                held = join(at, ["volumeMounts", index, "name"])
                yield line(held, name, f"the pod's volumes are {told}")


def _claimed(one: Object, name: Any) -> bool:
    """A StatefulSet makes volumes of its own."""
    claims = listed(one, "spec", "volumeClaimTemplates")
    return any(named(claim) == name for _, claim in claims)


def _secret_key(secret: Object, place: str, objects: list[Object]) -> Iterator[str]:
    name, key = secret.get("name"), secret.get("key")
    yield from _near(f"{place}.name", name, _names(objects, "Secret"))
    for one in objects:
        if one.get("kind") == "Secret" and named(one) == name:
            keys = {*map(str, mapping(one, "data")), *map(str, mapping(one, "stringData"))}
            if str(key) not in keys:
                told = ", ".join(sorted(keys)) or "none"
                yield line(f"{place}.key", key, f"Secret {name} has the keys {told}")


def _names(objects: list[Object], kind: str) -> set[str]:
    return {named(one) for one in objects if one.get("kind") == kind}


def _near(place: str, name: Any, known: Any) -> Iterator[str]:
    """A name that is none of the manifest's, but nearly so."""
    if not isinstance(name, str) or name in known:
        return
    if close := difflib.get_close_matches(name, [one for one in known if one], 1, cutoff=0.8):
        yield f"{place}: {shown(name)} is not in this manifest; did you mean {close[0]!r}?"


CHECKS: dict[str, Callable[[Object, list[Object], list[Pods]], Found]] = {
    "PodDisruptionBudget": _budget,
    "NetworkPolicy": _policy,
    "PodMonitor": _monitor,
    **dict.fromkeys(("Ingress", *ROUTES), _route),
    **dict.fromkeys(("HorizontalPodAutoscaler", "ScaledObject"), _scaler),
    "Namespace": _namespace,
    RAY_SERVICE: _ray_service,
    "Service": _service,
    "StatefulSet": lambda one, objects, pods: template_problems(one),
    "Deployment": lambda one, objects, pods: template_problems(one),
    "DaemonSet": lambda one, objects, pods: template_problems(one),
}
