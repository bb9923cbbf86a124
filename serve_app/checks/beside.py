"""What leads to Serve in one manifest with a RayService: does it name a Service that there is?

An object that is not in the manifest may be in the cluster, so only a name that nearly is one of
the manifest's is a mistake. What an API server or KubeRay refuses by itself is left to them.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from controller.validation import join, shown
from serve_app.checks.findings import line
from serve_app.checks.objects import RAY_SERVICE, dig, listed, mapping, named

SERVE_PORT, SERVE = 8000, "serve"
Object = Mapping[str, Any]


def route_problems(one: Object, objects: Sequence[Object]) -> Iterator[str]:
    """Services and ports that an Ingress or a route leads to and that are not there."""
    services = serve_services(objects)
    for place, name, port in backends(one):
        if name in services:
            if port is not None and str(port) not in services[name]:
                told = " or ".join(sorted(services[name]))
                yield line(f"{place}.port", port, f"Service {name} has port {told}")
        elif close := difflib.get_close_matches(name, services, 1, cutoff=0.8):
            known = f"{shown(name)} is not in this manifest; did you mean {close[0]!r}?"
            yield f"{place}.name: {known}"


def serve_config(service: Object) -> Any:
    """The Serve configuration in a RayService; None: there is none."""
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
