"""Ray's pods against their Serve configuration: switches, ports, probes, time to end streams."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.checks.beside import SERVE, SERVE_PORT, Object, serve_config, serve_port
from serve_app.checks.findings import line
from serve_app.checks.objects import dig, listed, mapping, ray_pods
from serve_app.environment import DIRECT_STREAMING, HA_PROXY

SWITCHES = (HA_PROXY, DIRECT_STREAMING)
HEAD_ONLY = "HeadOnly"
READINESS = "readinessProbe"
PROBES = (READINESS, "livenessProbe", "startupProbe")
INSTEAD = "ask Ray alone (http://localhost:52365/api/healthz)"
START_S = 600  # few models take longer from a pod's start to their first answer
DEADLINE = re.compile(r"--deadline-remaining-seconds[ =](\d+)")


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
