"""Check that whoever asks Serve in a RayService finds a proxy: Services, and probes of its pods."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from serve_app.checks.findings import Findings
from serve_app.checks.objects import NODE_TYPE, containers, dig, listed, mapping, ray_pods
from serve_app.checks.ports import SERVE_PORT
from serve_app.checks.values import line

HEAD_ONLY = "HeadOnly"
LOOPBACK = ("127.", "localhost", "::1")
PROBES = ("readinessProbe", "livenessProbe", "startupProbe")
INSTEAD = "ask Ray alone (http://localhost:52365/api/healthz)"
START_S = 600  # few models take longer from a pod's start to their first answer


def check_proxies(config: Any, service: Mapping[str, Any], where: str, findings: Findings) -> None:
    """Report Services and probes that ask where no proxy is, or before it answers.

    Args:
        config: the embedded Serve configuration.
        where: its place.
    """
    options = mapping(config, "http_options")
    head_only = dig(config, "proxy_location") == HEAD_ONLY
    host = options.get("host", "")
    if str(host).startswith(LOOPBACK):
        message = "Services come from outside the pod; allowed: 0.0.0.0"
        findings.add([line(f"{where}.http_options.host", host, message)])
    if head_only and dig(service, "spec", "excludeHeadPodFromServeSvc"):
        message = f"proxy_location is {HEAD_ONLY}, so the Service would lead to no proxy"
        findings.add([line("spec.excludeHeadPodFromServeSvc", True, message)])
    for pods in ray_pods(service):
        head = pods.labels[NODE_TYPE] == "head"
        for place, container in containers(pods):
            asking = list(_asking(container, options.get("port", SERVE_PORT)))
            # KubeRay gives the container of Ray a probe of its own.
            if not head and place.endswith(".containers[0]") and not container.get(PROBES[0]):
                asking.append(PROBES[0])
            for key in asking:
                _report(f"{place}.{key}", key, container, head, head_only, findings)


def _report(
    place: str,
    key: str,
    container: Mapping[str, Any],
    head: bool,
    head_only: bool,
    findings: Findings,
) -> None:
    probe = mapping(container, key)
    if head and key != "livenessProbe":
        findings.add(
            [f"{place}: asks Serve, which KubeRay deploys once the head is ready: never; {INSTEAD}"]
        )
    elif head_only and not head:
        own = "" if probe else " (KubeRay's own, as none is given)"
        effect = "the pod never becomes ready" if key == PROBES[0] else "the kubelet ends it"
        findings.add(
            [
                f"{place}: asks Serve{own}, and with proxy_location {HEAD_ONLY} no worker has a"
                f" proxy: {effect}; {INSTEAD}, or take proxy_location EveryNode"
            ]
        )
    elif key != PROBES[0]:
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
