"""Check a RayService against KubeRay's own schema.

``rayservice.json.gz`` is KubeRay's ``ray.io_rayservices.yaml`` without descriptions, as JSON.
"""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from controller.validation import join, unknown_key
from serve_app.checks.findings import line

KEPT = (
    *("type", "properties", "required", "items", "additionalProperties", "anyOf", "enum"),
    *("pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
)
PRESERVE = "x-kubernetes-preserve-unknown-fields"
WORDS = {"object": "a mapping", "array": "a list", "string": "a string (quote it)"}
Schema = dict[str, Any]


@cache
def rayservice_schema() -> Schema:
    """KubeRay's schema of a RayService."""
    packed = resources.files("serve_app.checks").joinpath("rayservice.json.gz").read_bytes()
    return schema_of(json.loads(gzip.decompress(packed)))


def schema_of(crd: Schema) -> Schema:
    """The schema of version v1 in a CustomResourceDefinition; objects take no unknown keys, which
    Kubernetes drops.
    """
    versions = {version["name"]: version for version in crd["spec"]["versions"]}
    schema = _closed(versions["v1"]["schema"]["openAPIV3Schema"])
    schema["properties"].pop("status", None)
    return schema


def _closed(part: Schema) -> Schema:
    kept = {name: value for name, value in part.items() if name in KEPT}
    inner = part.get("properties", {})
    if inner:
        kept["properties"] = {key: _closed(value) for key, value in inner.items()}
        if not part.get(PRESERVE):
            kept.setdefault("additionalProperties", False)
    # A key with a default may be left out: the API server fills it in first.
    kept["required"] = [n for n in part.get("required", ()) if "default" not in inner.get(n, {})]
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            kept[name] = _closed(part[name])
    if part.get("nullable"):
        kept["type"] = [kept["type"], "null"]
    return kept


def schema_problems(manifest: Schema, schema: Mapping[str, Any]) -> list[str]:
    """Unknown and missing keys and wrong types, down to the pod templates."""
    validator = Draft202012Validator(schema)
    errors = sorted(validator.iter_errors(manifest), key=lambda one: join("", one.absolute_path))
    return [problem for error in errors for problem in _lines(error)]


def _lines(error: ValidationError) -> list[str]:
    place = join("", error.absolute_path)
    value: Any = error.instance
    schema: Any = error.schema
    if error.validator == "additionalProperties":
        allowed = schema["properties"]
        return [unknown_key(place, str(key), allowed) for key in value if key not in allowed]
    if error.validator == "required":
        missing = [key for key in schema["required"] if key not in value]
        return [f"{join(place, [key])}: required key is missing" for key in missing]
    if error.validator == "type":
        wanted = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
        return [line(place, value, f"must be {WORDS.get(wanted, wanted)}")]
    if error.validator == "anyOf":
        return [line(place, value, "must be a number or a quantity such as 500m or 16Gi")]
    return [f"{place}: {error.message}"]
