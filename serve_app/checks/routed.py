"""Where the objects before Serve send requests, and the Services that they can name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from controller.validation import join
from serve_app.checks.objects import (
    RAY_SERVICE,
    containers,
    dig,
    listed,
    mapping,
    named,
    ray_pods,
    selects,
)
from serve_app.checks.proxies import SERVE, SERVE_PORT

# By kind: the list of its spec, and the list of Services in each item.
ROUTES = {
    **dict.fromkeys(("HTTPRoute", "GRPCRoute", "TCPRoute", "TLSRoute"), ("rules", "backendRefs")),
    "VirtualService": ("http", "route"),
    **dict.fromkeys(("HTTPProxy", "IngressRoute"), ("routes", "services")),
}
OF_ALB = "use-annotation"  # a port of AWS' Ingresses: what to do stands in an annotation
# What KubeRay's Service of a head has where its container names no ports.
HEAD_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, SERVE: SERVE_PORT}
GROUPS = "workerGroupSpecs"
METRICS = {"metrics": 8080}  # and in any case
# Where Ray and HAProxy listen, whether or not a container says so.
OF_RAY = {*HEAD_PORTS.values(), *METRICS.values(), 52365, 9101, 8404}


def backends(one: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Place, name and port (a number, a name or None) of each Service that an object leads to.

    Those of other namespaces, and hosts outside the cluster, are left out.
    """
    home = dig(one, "metadata", "namespace")
    if one.get("kind") == "Ingress":
        held = [("spec.defaultBackend", mapping(one, "spec", "defaultBackend"))]
        for rule, inner in listed(one, "spec", "rules"):
            for index, path in listed(inner, "http", "paths"):
                place = join("spec.rules", [rule, "http", "paths", index, "backend"])
                held.append((place, mapping(path, "backend")))
        for place, backend in held:
            service = mapping(backend, "service")
            port = mapping(service, "port")
            number = port.get("number", port.get("name"))
            if service and number != OF_ALB:
                yield f"{place}.service", str(service.get("name")), number
        return
    rules, services = ROUTES.get(str(one.get("kind")), ("", ""))
    for rule, inner in listed(one, "spec", rules):
        for index, backend in listed(inner, services):
            place = join(f"spec.{rules}", [rule, services, index])
            if istio := mapping(backend, "destination"):
                host, *domain = str(istio.get("host")).split(".")
                there = domain[:1] in ([], [home]) or (domain and home is None)
                if there and domain[1:2] in ([], ["svc"]):
                    yield f"{place}.destination", host, dig(istio, "port", "number")
            elif backend.get("kind", "Service") == "Service" and (
                backend.get("namespace", home) == home
            ):
                yield place, str(backend.get("name")), backend.get("port")


def service_ports(objects: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Ports by a Service's name; those that KubeRay makes for a RayService among them."""
    found: dict[str, set[str]] = {}
    for one in objects:
        if one.get("kind") == "Service":
            found[named(one)] = _of_service(one)
        elif one.get("kind") == RAY_SERVICE:
            head = next(ray_pods(one))
            held = [port for _, c in containers(head) for _, port in listed(c, "ports")]
            more = [port for port in held if str(port.get("name")).startswith(f"{SERVE}-")]
            told = {str(serve_port(one)), SERVE} | _told(more, "containerPort")
            found[serve_service(one)] = told | _of_service(mapping(one, "spec", "serveService"))
            ports = {**HEAD_PORTS, **METRICS} if not held else METRICS
            told = {*ports, *map(str, ports.values())} | _told(held, "containerPort")
            found[f"{named(one)}-head-svc"] = told
            own = mapping(one, "spec", "rayClusterConfig", "headGroupSpec", "headService")
            if own:
                found[named(own) or f"{named(one)}-head-svc"] = told | _of_service(own)
    return found


def serve_service(service: Mapping[str, Any]) -> str:
    """The name of the Service that KubeRay leads to Serve's proxies."""
    return named(mapping(service, "spec", "serveService")) or f"{named(service)}-serve-svc"


def serve_port(service: Mapping[str, Any]) -> int:
    """The port of a RayService's proxies."""
    port = mapping(serve_config(service), "http_options").get("port")
    return port if isinstance(port, int) else SERVE_PORT


def listening(service: Mapping[str, Any]) -> set[str]:
    """Ports of Ray's pods that a RayService names, or that nobody has to."""
    cluster = mapping(service, "spec", "rayClusterConfig")
    groups = [mapping(cluster, "headGroupSpec"), *(g for _, g in listed(cluster, GROUPS))]
    started = [value for one in groups for value in mapping(one, "rayStartParams").values()]
    grpc = mapping(serve_config(service), "grpc_options").get("port")
    return set(map(str, (*OF_RAY, serve_port(service), grpc, *started)))


def serve_config(service: Mapping[str, Any]) -> Any:
    """The Serve configuration in a RayService; None where there is none."""
    try:
        return yaml.safe_load(str(dig(service, "spec", "serveConfigV2")))
    except (yaml.YAMLError, ValueError, RecursionError):  # said elsewhere
        return None


def leads_to_serve(name: str, port: Any, objects: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a Service may lead to Serve's proxies: one that is not here may."""
    services = [one for one in objects if one.get("kind") == RAY_SERVICE]
    if name in (f"{named(one)}-head-svc" for one in services):
        return port in (SERVE, *map(serve_port, services))
    here = [one for one in objects if one.get("kind") == "Service" and named(one) == name]
    pods = [group for one in services for group in ray_pods(one)]
    selectors = [{"matchLabels": mapping(one, "spec", "selector")} for one in here]
    return not here or any(selects(selector, group) for selector in selectors for group in pods)


def _of_service(service: Mapping[str, Any]) -> set[str]:
    return _told([port for _, port in listed(service, "spec", "ports")], "port")


def _told(ports: Sequence[Mapping[str, Any]], number: str) -> set[str]:
    return {str(port[key]) for port in ports for key in (number, "name") if key in port}
