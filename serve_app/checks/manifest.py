"""Check a KubeRay manifest: each RayService of it, down to the embedded Serve configuration."""

import json
from collections.abc import Mapping
from typing import Any

import ray

from controller.errors import ConfigError
from controller.validation import join
from serve_app.checks.beside import relation_notes, relation_problems
from serve_app.checks.clocks import Longest, haproxy_clocks, longest
from serve_app.checks.crd import schema_problems
from serve_app.checks.findings import BUILDER, Findings, Target, builder_of
from serve_app.checks.objects import (
    CLUSTER,
    RAY_SERVICE,
    dig,
    listed,
    mapping,
    named,
    object_problems,
    ray_pods,
)
from serve_app.checks.proxies import check_proxies, grace_notes
from serve_app.checks.ray_pods import ON_OFF, RayContainer, check_switches, ray_containers
from serve_app.checks.room import check_room
from serve_app.checks.serve import check_serve
from serve_app.checks.values import kind_of, line
from serve_app.environment import DIRECT_STREAMING, HA_PROXY
from serve_app.pd import entries_of
from serve_app.source import parse_documents

API_VERSION = "ray.io/v1"
SERVE = "spec.serveConfigV2"


def is_manifest(document: Any) -> bool:
    """Is it a Kubernetes object (and not a Serve configuration)?"""
    return isinstance(document, dict) and "kind" in document


def check_documents(
    documents: list[Any], findings: Findings, crd: Mapping[str, Any] | None = None
) -> None:
    """Report everything wrong with the RayServices among ``documents``, and what can be said of
    the objects beside them.

    Args:
        crd: KubeRay's schema as ``read_crd`` has it; None: the one that is shipped.
    """
    documents = [one for document in documents for one in _items(document)]
    objects: list[dict[str, Any]] = [one for one in documents if isinstance(one, dict)]
    kinds = [str(one.get("kind")) for one in objects]
    if RAY_SERVICE not in kinds:
        findings.add([f"kind: there is no RayService in it, only {', '.join(kinds)}"])
    answer, owns = Longest(), [Findings() for _ in documents]
    for document, own in zip(documents, owns, strict=True):
        if not isinstance(document, dict):
            own.add([f"must be a Kubernetes object, got {kind_of(document)}"])
            continue
        if document.get("kind") == RAY_SERVICE:
            answer = max(answer, check_service(document, own, crd), key=lambda one: one.seconds)
        else:
            _check_object(document, own)
        own.add([*relation_problems(document, objects)])
    for number, (document, own) in enumerate(zip(documents, owns, strict=True), 1):
        if isinstance(document, dict):
            own.notes.extend(relation_notes(document, objects, answer))
        before = f"document {number}: " if len(documents) > 1 else ""
        findings.add([before + problem for problem in own.problems])
        findings.notes.extend(before + note for note in own.notes)
        findings.summary.extend(before + summary for summary in own.summary)


def _check_object(document: dict[str, Any], findings: Findings) -> None:
    problems = object_problems(document)
    if problems is None:
        kind, version = document.get("kind"), document.get("apiVersion")
        findings.notes.append(f"{kind} of {version}: its fields were not checked")
    else:
        findings.add(problems)


def _items(document: Any) -> list[Any]:
    """A list as ``kubectl get -o yaml`` writes it, taken apart."""
    items = document.get("items") if isinstance(document, dict) else None
    listed = isinstance(items, list) and str(document.get("kind")).endswith("List")
    return list(items) if listed and isinstance(items, list) else [document]


def check_service(
    manifest: dict[str, Any], findings: Findings, crd: Mapping[str, Any] | None = None
) -> Longest:
    """Report everything wrong with one RayService.

    Returns:
        The longest answer of its models, as far as they can be built.
    """
    if manifest.get("apiVersion") != API_VERSION:
        version = manifest.get("apiVersion")
        findings.add([line("apiVersion", version, f"must be {API_VERSION!r}")])
    if not named(manifest):
        findings.add(["metadata.name: required key is missing"])
    # What the cluster writes into an object that was exported from it.
    manifest = _without_nulls({key: v for key, v in manifest.items() if key != "status"})
    shape = schema_problems(manifest, crd)
    findings.add(shape)
    cluster = mapping(manifest, "spec", "rayClusterConfig")
    containers = ray_containers(manifest)
    if not shape:
        _check_cluster(cluster, findings)
        findings.add(
            [
                f"{pods.place}.containers: must hold the container that Ray runs in"
                for pods in ray_pods(manifest)
                if not listed(pods.spec, "containers")
            ]
        )
    config = _serve_config(manifest, findings)
    if config is None:
        return Longest()
    ours = _our_applications(config)
    if ours and not shape:
        check_switches(containers, findings)
        _note_accelerators(ours, cluster, findings)
    # Model paths lie in the image or on a volume.
    target = Target(env=_environment(containers), local_paths=False)
    placed = check_serve(config, SERVE, target, findings)
    models = [built for _, _, built in placed]
    answer = longest(models)
    if shape:
        return answer
    findings.notes.extend(haproxy_clocks(containers, answer))
    check_proxies(config, manifest, SERVE, findings)
    findings.notes.extend(grace_notes(models, manifest))
    if not findings.problems:  # what is added up is what was found to be right
        check_room(placed, cluster, findings)
    return answer


def _without_nulls(value: Any) -> Any:
    """The value as the API server reads it: a key without a value is not there."""
    if isinstance(value, dict):
        return {key: _without_nulls(v) for key, v in value.items() if v is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _check_cluster(cluster: Mapping[str, Any], findings: Findings) -> None:
    version = cluster.get("rayVersion")
    ours = ".".join(ray.__version__.split(".")[:2])
    if version is None:
        findings.notes.append(f"{CLUSTER}.rayVersion: is missing; checked here by Ray {ours}")
    elif not str(version).startswith(f"{ours}."):
        findings.notes.append(f"{CLUSTER}.rayVersion: {version!r}; checked here by Ray {ours}")
    groups = listed(cluster, "workerGroupSpecs")
    if not groups:
        findings.add([f"{CLUSTER}.workerGroupSpecs: required: at least one group of workers"])
    for index, group in groups:
        low, high = group.get("minReplicas"), group.get("maxReplicas")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            place = join(CLUSTER, ["workerGroupSpecs", index, "maxReplicas"])
            findings.add([line(place, high, f"minReplicas is {low}")])


def _serve_config(manifest: Mapping[str, Any], findings: Findings) -> Any:
    text = dig(manifest, "spec", "serveConfigV2")
    if not isinstance(text, str):
        findings.add([f"{SERVE}: required: a Serve configuration as a block of text (`|`)"])
        return None
    try:
        return parse_documents(text)[0]
    except ConfigError as error:
        findings.add([f"{SERVE}: {problem}" for problem in error.problems])
        return None


def _environment(containers: list[RayContainer]) -> dict[str, str]:
    head = containers[0].env if containers else {}
    env = {name: value for name, value in head.items() if isinstance(value, str)}
    if env.get(HA_PROXY) not in ON_OFF:  # said already, or known to Kubernetes alone
        env[HA_PROXY] = env.get(DIRECT_STREAMING, "0")
    return env


def _our_applications(config: Any) -> list[dict[str, Any]]:
    listed = config.get("applications", [config]) if isinstance(config, dict) else []
    applications = listed if isinstance(listed, list) else []
    return [app for app in applications if isinstance(app, dict) and builder_of(app) == BUILDER]


def _note_accelerators(
    applications: list[dict[str, Any]], cluster: Mapping[str, Any], findings: Findings
) -> None:
    """KubeRay's autoscaler does not know which GPU a worker that is not up yet will have."""
    if not cluster.get("enableInTreeAutoscaling"):
        return
    offered = json.dumps(cluster.get("workerGroupSpecs"), default=str)
    for application in applications:
        for _, entry in entries_of(application.get("args")):
            kind = entry.get("accelerator_type") if isinstance(entry, dict) else None
            if kind and f"accelerator_type:{kind}" not in offered:
                findings.notes.append(
                    f"{SERVE}: accelerator_type {kind!r} needs workers that offer the resource"
                    f" 'accelerator_type:{kind}'; without it in rayStartParams.resources the"
                    " autoscaler adds none (or leave it out and choose the GPU by nodeSelector)"
                )
