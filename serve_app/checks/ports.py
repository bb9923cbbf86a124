"""Check that pods agree with their Serve configuration: its port, and the time to end streams."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from controller.validation import join
from serve_app.checks.built import Built
from serve_app.checks.findings import Findings
from serve_app.checks.objects import mapping
from serve_app.checks.values import line

SERVE_PORT, SERVE = 8000, "serve"
ASKED = re.compile(r":(\d+)/-/(?:healthz|routes)")
DEADLINE = re.compile(r"--deadline-remaining-seconds[ =](\d+)")
KUBERNETES_GRACE_S = 30


def check_ports(config: Any, cluster: Mapping[str, Any], where: str, findings: Findings) -> None:
    """Report pods that are probed, or reached by Services, at another port than Serve's."""
    options = config.get("http_options") if isinstance(config, dict) else None
    port = options.get("port", SERVE_PORT) if isinstance(options, dict) else SERVE_PORT
    if not isinstance(port, int):
        return
    for place, pod in _pods(cluster, where):
        listed = pod.get("containers")
        container = listed[0] if isinstance(listed, list) and listed else None
        if not isinstance(container, dict):
            continue
        inner = join(place, ["containers", 0])
        asks = "Services go to" if "headGroupSpec" in place else ""
        if not asks and not isinstance(container.get("readinessProbe"), dict):
            asks = "KubeRay's probe asks"
        findings.add(list(_named(container, port, inner, asks)))
        for key in ("readinessProbe", "livenessProbe", "startupProbe"):
            for asked in _asked(mapping(container, key)):
                if int(asked) != port:
                    message = f"http_options.port is {port}"
                    findings.add([line(f"{inner}.{key}", int(asked), message)])


def _asked(probe: Mapping[str, Any]) -> Iterator[str | int]:
    """Ports at which a probe asks for what Serve alone has."""
    yield from ASKED.findall(repr(probe.get("exec")))
    asks = mapping(probe, "httpGet")
    if str(asks.get("path")).startswith("/-/") and isinstance(asks.get("port"), int):
        yield asks["port"]


def _named(container: Mapping[str, Any], port: int, where: str, asks: str) -> Iterator[str]:
    """KubeRay goes to the port of this name, to 8000 where there is none: its Services by what the
    head says, and by what workers say the readiness probe of those that bring none.

    Args:
        asks: who goes to this container's port; "": nobody.
    """
    listed = container.get("ports")
    ports = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    named = [one.get("containerPort") for one in ports if one.get("name") == SERVE]
    if named and named[0] != port:
        yield line(f"{where}.ports.{SERVE}", named[0], f"http_options.port is {port}")
    elif asks and not named and port != SERVE_PORT:
        yield (
            f"{where}.ports: {asks} port {SERVE_PORT} where none is named {SERVE!r}, and"
            f" http_options.port is {port}; add {{name: {SERVE}, containerPort: {port}}}"
        )


def check_grace(
    models: list[Built], cluster: Mapping[str, Any], where: str, findings: Findings
) -> None:
    """A note where a node's drain leaves replicas less time than their streams have."""
    waits = [
        model.deployment._deployment_config.graceful_shutdown_timeout_s
        for built in models
        for model in built.models.values()
    ]
    if not waits:
        return
    for place, pod in _pods(cluster, where):
        grace = pod.get("terminationGracePeriodSeconds", KUBERNETES_GRACE_S)
        if "workerGroupSpecs" in place and isinstance(grace, int) and grace < max(waits):
            findings.notes.append(
                f"{place}.terminationGracePeriodSeconds: {grace} is below"
                f" graceful_shutdown_timeout_s ({max(waits):g}): streams are cut when a node is"
                " drained"
            )
        for told in DEADLINE.findall(repr(pod.get("containers"))):
            if int(told) <= max(waits):
                findings.notes.append(
                    f"{place}: a drain of {told} s is no longer than graceful_shutdown_timeout_s"
                    f" ({max(waits):g}): replicas stop at once, before others have started"
                )


def _pods(cluster: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    groups = cluster.get("workerGroupSpecs")
    held = [(f"{where}.headGroupSpec", cluster.get("headGroupSpec"))]
    held += [
        (join(where, ["workerGroupSpecs", index]), group)
        for index, group in enumerate(groups if isinstance(groups, list) else [])
    ]
    for place, group in held:
        template = group.get("template") if isinstance(group, dict) else None
        pod = template.get("spec") if isinstance(template, dict) else None
        if isinstance(pod, dict):
            yield f"{place}.template.spec", pod
