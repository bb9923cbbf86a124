"""What leads to Serve in a manifest, and which clocks on that way are too short.

Shorter than the longest answer may be a clock of Serve's, of HAProxy's, or of a route.

An object that is not in the manifest may be in the cluster, so only a name that nearly is one of
the manifest's is a mistake. What an API server or KubeRay refuses by itself is left to them.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from controller.config import parse_batching
from controller.validation import join, shown
from serve_app.checks.built import Built, Model, Placed
from serve_app.checks.findings import RAY_SERVICE, dig, line, listed, mapping, named
from serve_app.config import classes_of

SERVE_PORT, SERVE = 8000, "serve"
Object = Mapping[str, Any]
# Without max_model_len, and without an ITL target: what many models have, and
# the pace of a fast card, so that an answer said to be cut really is.
TOKENS, ITL_MS = 8192, 20.0
# HAProxy's clocks: the default (None: none), and what each cuts.
HAPROXY = {
    "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": ("120", " whenever a replica comes or goes"),
    "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": (None, " unless they are streamed"),
}
DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:([0-9]+(?:\.[0-9]*)?)s?)?")


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


@dataclass(frozen=True)
class Longest:
    """The longest answer: tokens, and the time that each may take."""

    tokens: int = 0
    itl_ms: float = 0.0

    @property
    def seconds(self) -> float:
        return self.tokens * self.itl_ms / 1e3

    def cut(self, place: str, given: Any, when: str = "") -> list[str]:
        """A note if a clock is shorter; zero, or no number, is no clock."""
        clock_s = seconds(given)
        if not 0 < clock_s < self.seconds:
            return []
        reached = int(clock_s * 1e3 / self.itl_ms)
        return [
            f"{place}: {shown(given)} is enough for {reached} tokens at {self.itl_ms:g} ms, and"
            f" an answer may have {self.tokens} ({self.seconds:.0f} s): longer answers are"
            f" cut{when}"
        ]


def longest(applications: Iterable[Built]) -> Longest:
    """The longest answer of these applications; one without tokens if they have no model."""
    found = [_longest(model, built) for built in applications for model in built.models.values()]
    return max(found, key=lambda one: one.seconds, default=Longest())


def serve_clocks(config: Mapping[str, Any], where: str, placed: Sequence[Placed]) -> Iterator[str]:
    """Notes on the clocks of a Serve configuration."""
    timeout_s = dig(config, "http_options", "request_timeout_s")
    place = join(where, ["http_options", "request_timeout_s"])
    yield from longest(built for _, built in placed).cut(place, timeout_s)
    for at, built in placed:
        for name, model in built.models.items():
            place = f"{at}: {name}.graceful_shutdown_timeout_s"
            answer = _longest(model, built)
            yield from answer.cut(place, model.drain_s, " if their replica is stopped")


def haproxy_clocks(place: str, env: Mapping[str, Any], answer: Longest) -> Iterator[str]:
    """Notes on HAProxy's clocks, of a container whose variables are ``env``."""
    for name, (default, when) in HAPROXY.items():
        own = "" if name in env else " (Ray's default)"
        yield from answer.cut(f"{place}.env.{name}{own}", env.get(name, default), when)


def route_clocks(
    one: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], answer: Longest
) -> Iterator[str]:
    """Notes on the clocks of a route of Gateway API that leads to Serve.

    Args:
        objects: the manifest's.
    """
    leads = [place for place, name, _ in backends(one) if name in serve_services(objects)]
    for index, rule in listed(one, "spec", "rules"):
        place = join("spec.rules", [index])
        if any(lead.startswith(f"{place}.") for lead in leads):
            for key, given in mapping(rule, "timeouts").items():
                yield from answer.cut(f"{place}.timeouts.{key}", given)


def seconds(given: Any) -> float:
    """A duration as Serve or Gateway API write it, seconds; 0: not a duration."""
    found = DURATION.fullmatch(str(given))
    hours, minutes, rest = (float(n or 0) for n in found.groups()) if found else (0, 0, 0)
    return hours * 3600 + minutes * 60 + rest


def _longest(model: Model, built: Built) -> Longest:
    engine = mapping(model.entry, "engine_kwargs")
    bounds = (
        built.security.limits.max_tokens,
        engine.get("max_model_len"),
        dig(engine, "override_generation_config", "max_new_tokens"),
    )
    tokens = [one for one in bounds if isinstance(one, int) and one > 0]
    classes = classes_of(model.entry, "")
    agreed = [parse_batching(model.entry.get("batching")).sla.itl_ms]
    agreed += [one.itl_ms for one in classes.by_name.values()] if classes else []
    return Longest(min(tokens, default=TOKENS), max(filter(None, agreed), default=ITL_MS))
