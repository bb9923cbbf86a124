"""Check a KubeRay manifest: each RayService of it, down to the embedded Serve configuration.

Of its pods: switches, ports, probes, the time to end streams.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.validation import shown
from serve_app.checks.crd import rayservice_schema, schema_problems
from serve_app.checks.findings import (
    RAY_SERVICE,
    Findings,
    Target,
    dig,
    line,
    listed,
    mapping,
    ray_pods,
)
from serve_app.checks.quick import configs
from serve_app.checks.room import UNKNOWN, of_groups, room_problems
from serve_app.checks.routes import (
    SERVE,
    SERVE_PORT,
    Longest,
    Object,
    haproxy_clocks,
    longest,
    route_clocks,
    route_problems,
    serve_config,
    serve_port,
)
from serve_app.checks.serve import check_serve
from serve_app.environment import DIRECT_STREAMING, HA_PROXY

SWITCHES = (HA_PROXY, DIRECT_STREAMING)
HEAD_ONLY = "HeadOnly"
READINESS = "readinessProbe"
PROBES = (READINESS, "livenessProbe", "startupProbe")
INSTEAD = "ask Ray alone (http://localhost:52365/api/healthz)"
START_S = 600  # few models take longer from a pod's start to their first answer
DEADLINE = re.compile(r"--deadline-remaining-seconds[ =](\d+)")


def check_documents(documents: list[Any], findings: Findings) -> None:
    """Report everything wrong with the RayServices among ``documents``, and with the manifest's
    other objects.
    """
    objects: list[dict[str, Any]] = [one for one in documents if isinstance(one, dict)]
    kinds = [str(one.get("kind")) for one in objects]
    if RAY_SERVICE not in kinds:
        findings.add([f"kind: there is no RayService in it, only {', '.join(kinds)}"])
    answer, owns = Longest(), [Findings() for _ in documents]
    for document, own in zip(documents, owns, strict=True):
        if not isinstance(document, dict):
            own.add([f"must be a Kubernetes object, got {shown(document)}"])
        elif document.get("kind") == RAY_SERVICE:
            answer = max(answer, _check_service(document, own), key=lambda one: one.seconds)
    for number, (document, own) in enumerate(zip(documents, owns, strict=True), 1):
        if isinstance(document, dict):
            own.add([*route_problems(document, objects)])
            own.notes.extend(route_clocks(document, objects, answer))
        before = f"document {number}: " if len(documents) > 1 else ""
        findings.add([before + problem for problem in own.problems])
        findings.notes.extend(before + note for note in own.notes)
        findings.summary.extend(before + summary for summary in own.summary)


def _check_service(manifest: dict[str, Any], findings: Findings) -> Longest:
    """Report everything wrong with one RayService.

    Returns:
        The longest answer of its models, as far as they can be built.
    """
    # What the cluster writes into an object that was exported from it.
    manifest = _without_nulls({key: v for key, v in manifest.items() if key != "status"})
    shape = schema_problems(manifest, rayservice_schema())
    findings.add(shape)
    containers = ray_containers(manifest)
    head = containers[0].env if containers else {}
    env = {name: value for name, value in head.items() if isinstance(value, str)}
    env.setdefault(HA_PROXY, env.get(DIRECT_STREAMING, "0"))
    # Model paths lie in the image or on a volume.
    target, answer = Target(env=env, local_paths=False), Longest()
    for config, where in configs(manifest, findings):
        placed = check_serve(config, where, target, findings)
        answer = longest(built for _, built in placed)
        if shape:
            continue
        findings.add([*switch_problems(containers), *pod_problems(manifest, containers)])
        if containers and env[HA_PROXY] == "1" and "envFrom" not in containers[0].given:
            findings.notes.extend(haproxy_clocks(containers[0].place, env, answer))
        drains = [one.drain_s for _, built in placed for one in built.models.values()]
        findings.notes.extend(grace_notes(manifest, max(drains, default=0.0)))
        if not findings.problems:  # only valid configurations are added up
            there = of_groups(mapping(manifest, "spec", "rayClusterConfig"))
            found = room_problems(placed, there, UNKNOWN, "groups")
            findings.add([one if one.startswith(where) else f"{where}: {one}" for one in found])
    return answer


def _without_nulls(value: Any) -> Any:
    """The value as the API server reads it: a key without a value is not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class RayContainer:
    """The first container of a pod template: the one KubeRay starts Ray in.

    Args:
        env: values by name; None: Kubernetes fills the value in.
    """

    place: str
    is_head: bool
    given: Mapping[str, Any]
    env: Mapping[str, Any]


def ray_containers(service: Object) -> list[RayContainer]:
    """Ray's container of the head and of each worker group, the head's first."""
    found = []
    for pods in ray_pods(service):
        for _, one in listed(pods.spec, "containers")[:1]:
            env = {str(each.get("name")): each.get("value") for _, each in listed(one, "env")}
            found.append(RayContainer(f"{pods.place}.containers[0]", pods.is_head, one, env))
    return found


def switch_problems(every: list[RayContainer]) -> Iterator[str]:
    """Ray Serve reads its switches in every process, so all containers have the head's."""
    for one in every:
        for switch in SWITCHES:
            value, head = one.env.get(switch), every[0].env.get(switch)
            if value != head and not one.given.get("envFrom"):
                yield line(f"{one.place}.env.{switch}", value, f"the head has {head!r}")


def pod_problems(service: Object, every: list[RayContainer]) -> Iterator[str]:
    """Containers whose ports and probes do not fit Serve's configuration."""
    head_only = dig(serve_config(service), "proxy_location") == HEAD_ONLY
    port = serve_port(service)
    for one in every:
        held = [each for _, each in listed(one.given, "ports")]
        ports = {each.get("name"): each.get("containerPort") for each in held}
        # KubeRay goes to the port of this name, or to 8000 if there is none: its Services by the
        # head's port, and the readiness probe of workers that bring none by their own.
        told = ports.get(SERVE, SERVE_PORT)
        if told != port and (SERVE in ports or one.is_head or READINESS not in one.given):
            yield line(f"{one.place}.ports.{SERVE}", told, f"http_options.port is {port}")
        for key in PROBES:
            probe = mapping(one.given, key)
            kuberays = key == READINESS and not probe and not one.is_head
            if kuberays or _asks_serve(probe, ports, port):
                yield from _asking(one, key, probe, head_only)


def _asks_serve(probe: Object, ports: Mapping[Any, Any], port: int) -> bool:
    asked = [dig(probe, how, "port") for how in ("httpGet", "tcpSocket", "grpc")]
    command = str(dig(probe, "exec", "command"))
    by_path = re.search(rf"/-/(?:healthz|routes)|\b{port}\b", command)
    return by_path is not None or port in [ports.get(one, one) for one in asked]


def _asking(one: RayContainer, key: str, probe: Object, head_only: bool) -> Iterator[str]:
    """What is wrong with a probe that asks Serve."""
    place = f"{one.place}.{key}: asks Serve"
    if one.is_head and key != "livenessProbe":
        yield (
            f"{place}, which KubeRay deploys only once the head is ready, so the head never"
            f" is; {INSTEAD}"
        )
    elif head_only and not one.is_head:
        own = "" if probe else " (KubeRay's default)"
        yield (
            f"{place}{own}, and with proxy_location {HEAD_ONLY} no worker has a proxy; {INSTEAD},"
            " or take proxy_location EveryNode"
        )
    elif key != READINESS:
        period, failures = probe.get("periodSeconds", 10), probe.get("failureThreshold", 3)
        if isinstance(period, int) and isinstance(failures, int) and period * failures < START_S:
            yield (
                f"{place}, which answers while a replica is ready: after {period * failures} s"
                " without one, such as while a model loads, the kubelet ends the container;"
                f" {INSTEAD}"
            )


def grace_notes(service: Object, drain_s: float) -> Iterator[str]:
    """Nodes whose drain leaves replicas less time than their streams have.

    Args:
        drain_s: the longest of the models.
    """
    for pods in [*ray_pods(service)][1:]:
        drain = f"graceful_shutdown_timeout_s ({drain_s:g})"
        grace = pods.spec.get("terminationGracePeriodSeconds", 30)  # Kubernetes' own
        if isinstance(grace, int) and grace < drain_s:
            yield (
                f"{pods.place}.terminationGracePeriodSeconds: {grace} is below {drain}: streams are"
                " cut when a node is drained"
            )
        for told in DEADLINE.findall(repr(pods.spec.get("containers"))):
            if int(told) <= drain_s:
                yield (
                    f"{pods.place}: a drain of {told} s is no longer than {drain}: replicas stop at"
                    " once, before others have started"
                )
