"""Check a KubeRay manifest: each RayService, down to the embedded Serve configuration."""

from collections.abc import Mapping
from typing import Any

from controller.validation import shown
from serve_app.checks.beside import route_problems
from serve_app.checks.clocks import Longest, haproxy_clocks, longest, route_clocks
from serve_app.checks.crd import schema_problems
from serve_app.checks.findings import Findings, Target
from serve_app.checks.objects import RAY_SERVICE, mapping
from serve_app.checks.pods import grace_notes, pod_problems, ray_containers, switch_problems
from serve_app.checks.quick import configs
from serve_app.checks.room import UNKNOWN, of_groups, room_problems
from serve_app.checks.serve import check_serve
from serve_app.environment import DIRECT_STREAMING, HA_PROXY


def check_documents(
    documents: list[Any], findings: Findings, crd: Mapping[str, Any] | None = None
) -> None:
    """Report everything wrong with the RayServices among ``documents``, and with the manifest's
    other objects.

    Args:
        crd: KubeRay's schema as ``read_crd`` has it; None: the one that is shipped.
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
            answer = max(answer, _check_service(document, own, crd), key=lambda one: one.seconds)
    for number, (document, own) in enumerate(zip(documents, owns, strict=True), 1):
        if isinstance(document, dict):
            own.add([*route_problems(document, objects)])
            own.notes.extend(route_clocks(document, objects, answer))
        before = f"document {number}: " if len(documents) > 1 else ""
        findings.add([before + problem for problem in own.problems])
        findings.notes.extend(before + note for note in own.notes)
        findings.summary.extend(before + summary for summary in own.summary)


def _check_service(
    manifest: dict[str, Any], findings: Findings, crd: Mapping[str, Any] | None
) -> Longest:
    """Report everything wrong with one RayService.

    Returns:
        The longest answer of its models, as far as they can be built.
    """
    # What the cluster writes into an object that was exported from it.
    manifest = _without_nulls({key: v for key, v in manifest.items() if key != "status"})
    shape = schema_problems(manifest, crd)
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
