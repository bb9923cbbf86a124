"""Which clocks are shorter than the longest answer: Serve's, HAProxy's, and those before Serve."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.classes import ServiceClasses
from controller.config import parse_batching
from controller.validation import join, shown
from replicas.door.settings import Security
from serve_app.checks.batches import BATCHES
from serve_app.checks.built import Built
from serve_app.checks.findings import builder_of
from serve_app.checks.objects import dig, listed, mapping
from serve_app.checks.ray_pods import RayContainer
from serve_app.checks.routed import backends, leads_to_serve
from serve_app.config import classes_of
from serve_app.environment import HA_PROXY

# Where max_model_len is the model's own, and where no ITL is agreed: what many models have, and
# the pace of a fast card, so that what is said to be cut is.
TOKENS, ITL_MS = 8192, 20.0
DRAIN = "graceful_shutdown_timeout_s"
HARD_STOP, HARD_STOP_S = "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S", "120"
SILENCES = ("RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S", "RAY_SERVE_HAPROXY_INGRESS_TIMEOUT_SERVER_S")
WHOLE = "longer ones are cut"
SILENT = "longer ones are cut unless they are streamed"
STOPPED = "longer ones are cut where their replica is stopped"
RELOADED = "longer ones are cut whenever a replica comes or goes"
DURATION = re.compile(r"([0-9.]+)(ms|us|[smhd]?)")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
IDLE_OF_ALB = "alb.ingress.kubernetes.io/load-balancer-attributes"
NGINX = "nginx.ingress.kubernetes.io/proxy-read-timeout"
# Of Ingresses, Services and OpenShift's Routes: the unit of a number without one, and what is cut.
ANNOTATIONS = {
    NGINX: ("s", SILENT),
    "nginx.org/proxy-read-timeout": ("s", SILENT),
    "haproxy.org/timeout-server": ("ms", SILENT),
    "haproxy-ingress.github.io/timeout-server": ("ms", SILENT),
    "haproxy.router.openshift.io/timeout": ("ms", SILENT),
    "konghq.com/read-timeout": ("ms", SILENT),
    "projectcontour.io/response-timeout": ("s", WHOLE),
    "appgw.ingress.kubernetes.io/request-timeout": ("s", SILENT),
    "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout": ("s", SILENT),
    IDLE_OF_ALB: ("s", SILENT),
}
# What a class of Ingresses does where no annotation says otherwise.
DEFAULTS = {"nginx": {NGINX: "60"}, "alb": {IDLE_OF_ALB: "idle_timeout.timeout_seconds=60"}}
# By kind: a list of its spec ("": the spec itself), keys below an item, and what is cut.
FIELDS: dict[str, tuple[tuple[str, tuple[str, ...], str], ...]] = {
    "HTTPRoute": (
        ("rules", ("timeouts", "request"), WHOLE),
        ("rules", ("timeouts", "backendRequest"), WHOLE),
    ),
    "VirtualService": (("http", ("timeout",), WHOLE),),
    "HTTPProxy": (
        ("routes", ("timeoutPolicy", "response"), WHOLE),
        ("routes", ("timeoutPolicy", "idle"), SILENT),
    ),
    "BackendConfig": (("", ("timeoutSec",), WHOLE),),
    "GCPBackendPolicy": (("", ("default", "timeoutSec"), WHOLE),),
    "BackendTrafficPolicy": (("", ("timeout", "http", "requestTimeout"), WHOLE),),
}


@dataclass(frozen=True)
class Longest:
    """The longest answer: tokens, and the time that each may take."""

    tokens: int = 0
    itl_ms: float = 0.0

    @property
    def seconds(self) -> float:
        return self.tokens * self.itl_ms / 1e3

    def cut(self, place: str, given: Any, cut: str, unit: str = "s") -> list[str]:
        """A note where a clock is shorter; zero and what is no time are no clock."""
        clock_s = seconds(given, unit)
        if not 0 < clock_s < self.seconds:
            return []
        reached = int(clock_s * 1e3 / self.itl_ms)
        return [
            f"{place}: {shown(given)} is enough for {reached} tokens at {self.itl_ms:g} ms, and an"
            f" answer may have {self.tokens} ({self.seconds:.0f} s): {cut}"
        ]


def longest(applications: Iterable[Built]) -> Longest:
    """The longest answer of these applications; one without tokens where they have no model."""
    found = [
        _longest(model.entry, built.security)
        for built in applications
        for model in built.models.values()
    ]
    return max(found, key=lambda one: one.seconds, default=Longest())


def serve_clocks(
    config: Mapping[str, Any], where: str, placed: Sequence[tuple[str, list[Any], Built]]
) -> list[str]:
    """Notes on the clocks of a Serve configuration.

    Args:
        placed: the place of each application, its ``deployments`` and what it comes to.
    """
    timeout_s = mapping(config, "http_options").get("request_timeout_s")
    place = join(where, ["http_options", "request_timeout_s"])
    batches = any(builder_of(one) == BATCHES for _, one in listed(config, "applications"))
    cut = f"{WHOLE}, those of batches, too" if batches else WHOLE
    found = longest(built for _, _, built in placed).cut(place, timeout_s, cut)
    for at, overrides, built in placed:
        for name, model in built.models.items():
            drain_s = model.deployment._deployment_config.graceful_shutdown_timeout_s
            given = [one for one in overrides if dig(one, "name") == name and DRAIN in one]
            drain_s = given[-1][DRAIN] if given else drain_s
            answer = _longest(model.entry, built.security)
            found += answer.cut(f"{at}: {name}.{DRAIN}", drain_s, STOPPED)
    return found


def haproxy_clocks(containers: list[RayContainer], answer: Longest) -> list[str]:
    """Notes on HAProxy's clocks, where it is the way in: of the first container with some."""
    for one in containers if containers and containers[0].env.get(HA_PROXY) == "1" else []:
        stop = one.env.get(HARD_STOP, None if one.open_env else HARD_STOP_S)
        own = "" if HARD_STOP in one.env else " (Ray's own, as none is given)"
        found = answer.cut(f"{one.place}.env.{HARD_STOP}{own}", stop, RELOADED)
        for name in SILENCES:
            found += answer.cut(f"{one.place}.env.{name}", one.env.get(name), SILENT)
        if found:  # the others are alike
            return found
    return []


def object_clocks(
    one: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], answer: Longest
) -> Iterator[str]:
    """Notes on the clocks of what stands before Serve: routes, Ingresses, balancers.

    Args:
        objects: the manifest's.
    """
    for rules, keys, cut in FIELDS.get(str(one.get("kind")), ()):
        spec = mapping(one, "spec")
        held = [(join("spec", [rules, n]), item) for n, item in listed(spec, rules)]
        for place, item in held if rules else [("spec", spec)]:
            if _to_serve(one, f"{place}.", objects):
                yield from answer.cut(join(place, list(keys)), dig(item, *keys), cut)
    if service := mapping(one, "spec", "serveService"):  # KubeRay's, as a RayService has it
        for note in object_clocks(service, objects, answer):
            yield f"spec.serveService.{note}"
    given = mapping(one, "metadata", "annotations")
    kind = dig(one, "spec", "ingressClassName") or given.get("kubernetes.io/ingress.class")
    for key, (unit, cut) in ANNOTATIONS.items():
        default = DEFAULTS.get(str(kind), {}).get(key)
        if (value := given.get(key, default)) is not None and _to_serve(one, "spec.", objects):
            own = "" if key in given else f" (what {kind} does, as none is given)"
            yield from answer.cut(f"metadata.annotations.{key}{own}", value, cut, unit)


def seconds(given: Any, unit: str) -> float:
    """A duration as Go, HAProxy or NGINX write it, s; 0: it is none.

    Args:
        unit: of a number without one.
    """
    text = str(given).rpartition("idle_timeout.timeout_seconds=")[2].split(",")[0]
    parts = DURATION.findall(text)
    if "".join(number + of for number, of in parts) != text:
        return 0.0
    try:
        return sum(float(number) * UNITS[of or unit] for number, of in parts)
    except ValueError:
        return 0.0


def _longest(entry: Mapping[str, Any], security: Security) -> Longest:
    engine = mapping(entry, "engine_kwargs")
    bounds = (
        security.limits.max_tokens,
        engine.get("max_model_len"),
        dig(engine, "override_generation_config", "max_new_tokens"),
    )
    tokens = [one for one in bounds if isinstance(one, int) and one > 0]
    classes: ServiceClasses | None = classes_of(dict(entry), "")
    agreed = [parse_batching(entry.get("batching")).sla.itl_ms]
    agreed += [one.itl_ms for one in classes.by_name.values()] if classes else []
    return Longest(min(tokens, default=TOKENS), max(filter(None, agreed), default=ITL_MS))


def _to_serve(one: Mapping[str, Any], where: str, objects: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one of the Services that an object names there may be Serve's; it may name none."""
    named = [(name, port) for place, name, port in backends(one) if place.startswith(where)]
    return not named or any(leads_to_serve(name, port, objects) for name, port in named)
