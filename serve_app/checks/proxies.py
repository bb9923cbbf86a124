"""Ray's pods beside their Serve configuration: its port, probes and Services that ask where no
proxy is, and the time to end streams.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from serve_app.checks.built import Built
from serve_app.checks.findings import Findings
from serve_app.checks.objects import NODE_TYPE, Pods, containers, dig, listed, mapping, ray_pods
from serve_app.checks.values import line

HEAD_ONLY = "HeadOnly"
LOOPBACK = ("127.", "localhost", "::1")
READINESS = "readinessProbe"
PROBES = (READINESS, "livenessProbe", "startupProbe")
INSTEAD = "ask Ray alone (http://localhost:52365/api/healthz)"
START_S = 600  # few models take longer from a pod's start to their first answer
SERVE_PORT, SERVE = 8000, "serve"
DEADLINE = re.compile(r"--deadline-remaining-seconds[ =](\d+)")
KUBERNETES_GRACE_S = 30


def check_proxies(config: Any, service: Mapping[str, Any], where: str, findings: Findings) -> None:
    """Report Services and probes that ask at a port that Serve does not have, where no proxy is, or
    before it answers.

    Args:
        config: the embedded Serve configuration.
        where: its place.
    """
    options = mapping(config, "http_options")
    head_only = dig(config, "proxy_location") == HEAD_ONLY
    port, host = options.get("port", SERVE_PORT), options.get("host", "")
    if str(host).startswith(LOOPBACK):
        message = "Services come from outside the pod; allowed: 0.0.0.0"
        findings.add([line(f"{where}.http_options.host", host, message)])
    if head_only and dig(service, "spec", "excludeHeadPodFromServeSvc"):
        message = f"proxy_location is {HEAD_ONLY}, so the Service would lead to no proxy"
        findings.add([line("spec.excludeHeadPodFromServeSvc", True, message)])
    for pods in ray_pods(service):
        head = pods.labels[NODE_TYPE] == "head"
        for place, container in containers(pods):
            asking = list(_asking(container, port))
            if place.endswith(".containers[0]"):  # Ray's
                findings.add([*_named(container, port, place, head)])
                findings.add([*_elsewhere(container, port, place)])
                # KubeRay gives it a probe of its own.
                if not head and not container.get(READINESS):
                    asking.append(READINESS)
            for key in asking:
                _report(f"{place}.{key}", key, mapping(container, key), head, head_only, findings)


def _named(container: Mapping[str, Any], port: Any, where: str, head: bool) -> Iterator[str]:
    """KubeRay goes to the port of this name, to 8000 where there is none: its Services by what the
    head says, and by what workers say the readiness probe of those that bring none.
    """
    named = [one for _, one in listed(container, "ports") if one.get("name") == SERVE]
    asks = "Services go to" if head else "KubeRay's probe asks"
    if named and named[0].get("containerPort") != port:
        told = named[0].get("containerPort")
        yield line(f"{where}.ports.{SERVE}", told, f"http_options.port is {port}")
    elif not named and port != SERVE_PORT and (head or not mapping(container, READINESS)):
        yield (
            f"{where}.ports: {asks} port {SERVE_PORT} where none is named {SERVE!r}, and"
            f" http_options.port is {port}; add {{name: {SERVE}, containerPort: {port}}}"
        )


def _elsewhere(container: Mapping[str, Any], port: Any, where: str) -> Iterator[str]:
    """Probes that ask for what Serve alone has, at another port."""
    for key in PROBES:
        probe = mapping(container, key)
        asked = [int(one) for one in re.findall(r":(\d+)/-/(?:healthz|routes)", repr(probe))]
        get = mapping(probe, "httpGet")
        if str(get.get("path")).startswith("/-/") and isinstance(get.get("port"), int):
            asked.append(get["port"])
        yield from (
            line(f"{where}.{key}", one, f"http_options.port is {port}")
            for one in asked
            if one != port
        )


def _report(
    place: str,
    key: str,
    probe: Mapping[str, Any],
    head: bool,
    head_only: bool,
    findings: Findings,
) -> None:
    if head and key != "livenessProbe":
        findings.add(
            [f"{place}: asks Serve, which KubeRay deploys once the head is ready: never; {INSTEAD}"]
        )
    elif head_only and not head:
        own = "" if probe else " (KubeRay's own, as none is given)"
        effect = "the pod never becomes ready" if key == READINESS else "the kubelet ends it"
        findings.add(
            [
                f"{place}: asks Serve{own}, and with proxy_location {HEAD_ONLY} no worker has a"
                f" proxy: {effect}; {INSTEAD}, or take proxy_location EveryNode"
            ]
        )
    elif key != READINESS:
        waits_s = _number(probe, "periodSeconds", 10) * _number(probe, "failureThreshold", 3)
        waits_s += _number(probe, "initialDelaySeconds", 0) if key == "startupProbe" else 0
        told = (
            f"{place}: asks Serve, which answers while a replica is ready: after {waits_s} s"
            f" without one, as while a model loads, the kubelet ends the container; {INSTEAD}"
        )
        if waits_s < START_S:
            findings.add([told])
        else:
            findings.notes.append(told)


def _asking(container: Mapping[str, Any], port: Any) -> Iterator[str]:
    """The probes of a container that ask Serve, however they do."""
    named = {one.get("name"): one.get("containerPort") for _, one in listed(container, "ports")}
    for key in PROBES:
        probe = mapping(container, key)
        ports = [dig(probe, how, "port") for how in ("httpGet", "tcpSocket", "grpc")]
        command = str(dig(probe, "exec", "command"))
        if port in [named.get(one, one) for one in ports] or re.search(
            rf"/-/(?:healthz|routes)|\b{port}\b", command
        ):
            yield key


def _number(probe: Mapping[str, Any], key: str, default: int) -> int:
    value = probe.get(key)
    return value if isinstance(value, int) else default


def grace_notes(models: Sequence[Built], service: Mapping[str, Any]) -> Iterator[str]:
    """Where a node's drain leaves replicas less time than their streams have."""
    waits = [
        model.deployment._deployment_config.graceful_shutdown_timeout_s
        for built in models
        for model in built.models.values()
    ]
    workers = [pods for pods in ray_pods(service) if pods.labels[NODE_TYPE] == "worker"]
    for pods in workers if waits else ():
        yield from _grace(pods, max(waits))


def _grace(pods: Pods, drain_s: float) -> Iterator[str]:
    grace = pods.spec.get("terminationGracePeriodSeconds", KUBERNETES_GRACE_S)
    if isinstance(grace, int) and grace < drain_s:
        yield (
            f"{pods.place}.terminationGracePeriodSeconds: {grace} is below"
            f" graceful_shutdown_timeout_s ({drain_s:g}): streams are cut when a node is drained"
        )
    for told in DEADLINE.findall(repr(pods.spec.get("containers"))):
        if int(told) <= drain_s:
            yield (
                f"{pods.place}: a drain of {told} s is no longer than graceful_shutdown_timeout_s"
                f" ({drain_s:g}): replicas stop at once, before others have started"
            )
