"""What stands in one manifest beside a RayService: does each name what another one has?

An object that is not in the manifest may be in the cluster, so only a name that nearly is one of
the manifest's is a mistake. What an API server or KubeRay refuses by itself is left to them.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from controller.validation import join, shown
from serve_app.checks.findings import line
from serve_app.checks.objects import (
    CLUSTER,
    RAY_SERVICE,
    Pods,
    dig,
    listed,
    mapping,
    named,
    pods_of,
    selects,
)

POLICY, BUDGET = "NetworkPolicy", "PodDisruptionBudget"
# By kind: where a selector of pods stands.
SELECTORS = {
    POLICY: "podSelector",
    **dict.fromkeys((BUDGET, "PodMonitor", "Service"), "selector"),
}
SERVE_PORT, SERVE = 8000, "serve"
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
            told = ", ".join(
                f"{k}={value}" for k, value in mapping(selector, "matchLabels").items()
            )
            yield f"spec.{key}: chooses no pod of this manifest ({told})"
    of_ray = [
        group
        for group in chosen
        # What an expression chooses is not known here.
        if group.of_ray and "matchExpressions" not in mapping(one, "spec", str(key))
    ]
    if kind == BUDGET and of_ray:
        yield from _budget(one)
    if kind == POLICY:
        yield from _policy(one, of_ray, objects)
    yield from _routed(one, objects)


def _budget(one: Object) -> Iterator[str]:
    why = "no scale belongs to Ray's pods, so Kubernetes takes minAvailable, as a number, alone"
    for key in ("maxUnavailable", "minAvailable"):
        value = dig(one, "spec", key)
        if value is not None and (key == "maxUnavailable" or not isinstance(value, int)):
            yield line(f"spec.{key}", value, why)


def _policy(one: Object, chosen: list[Pods], objects: Sequence[Object]) -> Iterator[str]:
    """A network policy that keeps Ray's pods from each other."""
    types = dig(one, "spec", "policyTypes")
    ray = [group for other in objects for group in pods_of(other) if group.of_ray]
    apart = [(to, come) for to in chosen for come in ray if not _lets(objects, to, come)]
    if apart and "Ingress" in (types if isinstance(types, list) else ["Ingress"]):
        to, come = (group.place.removeprefix(f"{CLUSTER}.").split(".")[0] for group in apart[0])
        yield (
            f"spec.ingress: keeps {come} from {to}; a rule without ports has to let Ray's own pods"
            " in"
        )


def _lets(objects: Sequence[Object], to: Pods, come: Pods) -> bool:
    """Whether a rule of the manifest's policies lets a pod of Ray to all ports of another."""
    policies = [
        other
        for other in objects
        if other.get("kind") == POLICY and selects(mapping(other, "spec", "podSelector"), to)
    ]
    for rule in (rule for policy in policies for _, rule in listed(policy, "spec", "ingress")):
        peers = [peer for _, peer in listed(rule, "from")]
        here = [one for one in peers if "ipBlock" in one or selects(one.get("podSelector"), come)]
        if not rule.get("ports") and (here or not peers):
            return True
    return False


def _routed(one: Object, objects: Sequence[Object]) -> Iterator[str]:
    for place, name, port in backends(one):
        services = serve_services(objects)
        if name in services:
            if port is not None and str(port) not in services[name]:
                told = " or ".join(sorted(services[name]))
                yield line(f"{place}.port", port, f"Service {name} has port {told}")
        elif close := difflib.get_close_matches(name, services, 1, cutoff=0.8):
            known = f"{shown(name)} is not in this manifest; did you mean {close[0]!r}?"
            yield f"{place}.name: {known}"


def serve_config(service: Object) -> Any:
    """The Serve configuration in a RayService; None where there is none."""
    try:
        return yaml.safe_load(str(dig(service, "spec", "serveConfigV2")))
    except (yaml.YAMLError, ValueError, RecursionError):  # said elsewhere
        return None


def serve_port(service: Object) -> int:
    """The port of a RayService's proxies."""
    port = dig(serve_config(service), "http_options", "port")
    return port if isinstance(port, int) else SERVE_PORT


def serve_services(objects: Sequence[Object]) -> dict[str, set[str]]:
    """Ports of the Services that KubeRay leads to Serve's proxies, by their names."""
    found = {}
    for one in (other for other in objects if other.get("kind") == RAY_SERVICE):
        own = mapping(one, "spec", "serveService")
        told = [port for _, port in listed(own, "spec", "ports")]
        keys = {str(port[key]) for port in told for key in ("name", "port") if key in port}
        name = named(own) or f"{named(one)}-serve-svc"
        found[name] = keys | {SERVE, str(serve_port(one))}
    return found


def backends(one: Object) -> Iterator[tuple[str, str, Any]]:
    """Place, name and port (a number, a name or None) of each Service that an Ingress or a route of
    Gateway API leads to; those of other namespaces are left out.
    """
    home, kind = dig(one, "metadata", "namespace"), str(one.get("kind"))
    for index, rule in listed(one, "spec", "rules") if kind == "Ingress" else ():
        for k, path in listed(rule, "http", "paths"):
            service = mapping(path, "backend", "service")
            number = dig(service, "port", "number") or dig(service, "port", "name")
            # A port of AWS' Ingresses may be an action that stands in an annotation.
            if service and number != "use-annotation":
                place = join("spec.rules", [index, "http", "paths", k, "backend", "service"])
                yield place, str(service.get("name")), number
    for index, rule in listed(one, "spec", "rules") if kind.endswith("Route") else ():
        for k, backend in listed(rule, "backendRefs"):
            theirs = backend.get("kind", "Service"), backend.get("namespace", home)
            if theirs == ("Service", home):
                place = join("spec.rules", [index, "backendRefs", k])
                yield place, str(backend.get("name")), backend.get("port")
