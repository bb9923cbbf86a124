"""Make ``serve_app/checks/rayservice.json`` from KubeRay's RayService CRD.

    python -m serve_app.checks.compact_crd CRD.yaml > serve_app/checks/rayservice.json

CRD.yaml is KubeRay's ``ray.io_rayservices.yaml``: 1 MB, most of it prose and the same pod template
many times over. What is left is the JSON schema of version v1 that a manifest is checked by: no
descriptions, no status, every repeated part once, and every
object closed, since Kubernetes drops the keys it does not know.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

KEPT = (
    *("type", "properties", "required", "items", "additionalProperties", "anyOf", "enum"),
    *("pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
)
PRESERVE = "x-kubernetes-preserve-unknown-fields"
SHORT_CHARS = 100  # a part shorter than this is repeated rather than named

Schema = dict[str, Any]


def compact(crd: Schema) -> Schema:
    """The closed schema of the CRD's version v1, with repeated parts under ``$defs``."""
    versions = {version["name"]: version for version in crd["spec"]["versions"]}
    schema = close(versions["v1"]["schema"]["openAPIV3Schema"])
    schema["properties"].pop("status", None)
    seen: Counter[str] = Counter()
    count(schema, seen)
    names: dict[str, str] = {}
    definitions: Schema = {}

    def share(part: Schema, top: bool = False) -> Schema:
        text = key(part)
        if top or seen[text] < 2 or len(text) < SHORT_CHARS:
            return over(part, share)
        if text not in names:
            names[text] = f"p{len(names)}"
            definitions[names[text]] = over(part, share)
        return {"$ref": f"#/$defs/{names[text]}"}

    return {**share(schema, top=True), "$defs": definitions}


def close(part: Schema) -> Schema:
    """``part`` with the keywords that validate only; an object with properties takes no others."""
    kept = {name: value for name, value in part.items() if name in KEPT}
    if "properties" in kept and "additionalProperties" not in kept and not part.get(PRESERVE):
        kept["additionalProperties"] = False
    if "required" in kept:  # what has a default may be left out: the API server puts it in first
        given = [name for name in kept.pop("required") if not _has_default(part, name)]
        kept |= {"required": given} if given else {}
    if part.get("nullable"):
        kept["type"] = [kept["type"], "null"]
    return over(kept, close)


def _has_default(part: Schema, name: str) -> bool:
    return "default" in part.get("properties", {}).get(name, {})


def over(part: Schema, change: Any) -> Schema:
    """A copy of ``part`` with ``change`` applied to every schema directly inside it."""
    result = dict(part)
    if "properties" in part:
        result["properties"] = {k: change(v) for k, v in part["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            result[name] = change(part[name])
    if "anyOf" in part:
        result["anyOf"] = [change(choice) for choice in part["anyOf"]]
    return result


def count(part: Schema, seen: Counter[str]) -> None:
    """Count every schema inside ``part`` by its text."""

    def note(inner: Schema) -> Schema:
        seen[key(inner)] += 1
        return over(inner, note)

    note(part)


def key(part: Schema) -> str:
    """The text two equal schemas share."""
    return json.dumps(part, sort_keys=True)


def lines(schema: Schema) -> str:
    """JSON with one line per definition, so that a new CRD gives a readable difference."""
    rows = [f'"{name}": {key(part)}' for name, part in schema["$defs"].items()]
    head = {name: value for name, value in schema.items() if name != "$defs"}
    body = ",\n".join(rows)
    return f'{{"$defs": {{\n{body}\n}},\n{key(head)[1:]}\n'


if __name__ == "__main__":
    crd = yaml.load(Path(sys.argv[1]).read_text(), Loader=yaml.CSafeLoader)
    sys.stdout.write(lines(compact(crd)))
