"""Check a RayService against KubeRay's own schema of it.

``rayservice.json.gz`` is KubeRay's ``ray.io_rayservices.yaml`` without descriptions, as JSON.
"""

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from controller.data_file import text_of
from controller.errors import ConfigError
from controller.validation import join, unknown_key
from controller.yaml_text import problem_of
from serve_app.checks.values import line

KEPT = (
    *("type", "properties", "required", "items", "additionalProperties", "anyOf", "enum"),
    *("pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
)
PRESERVE = "x-kubernetes-preserve-unknown-fields"
WORDS = {"object": "a mapping", "array": "a list", "string": "a string (quote it)"}


Schema = dict[str, Any]


@cache
def _shipped() -> Draft202012Validator:
    packed = resources.files("serve_app.checks").joinpath("rayservice.json.gz").read_bytes()
    return Draft202012Validator(schema_of(json.loads(gzip.decompress(packed))))


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
    if "properties" in kept and "additionalProperties" not in kept and not part.get(PRESERVE):
        kept["additionalProperties"] = False
    if "required" in kept:  # what has a default may be left out: the API server puts it in first
        properties = part.get("properties", {})
        given = [n for n in kept.pop("required") if "default" not in properties.get(n, {})]
        kept |= {"required": given} if given else {}
    if part.get("nullable"):
        kept["type"] = [kept["type"], "null"]
    return _inside(kept, _closed)


def _inside(part: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """A copy of a schema with ``change`` applied to every schema directly inside it."""
    result = dict(part)
    if "properties" in part:
        result["properties"] = {k: change(v) for k, v in part["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            result[name] = change(part[name])
    if "anyOf" in part:
        result["anyOf"] = [change(choice) for choice in part["anyOf"]]
    return result


def read_crd(path: Path) -> dict[str, Any]:
    """The closed schema of a RayService from KubeRay's CustomResourceDefinition of it.

    Raises:
        ConfigError: the file cannot be read, or holds no such definition.
    """
    text = text_of(path.read_bytes, f"--crd {path}: ")
    try:
        documents = list(yaml.load_all(text, yaml.CSafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError([f"--crd {path}: {problem_of(error)}"]) from None
    for document in documents:
        try:
            if document["spec"]["names"]["kind"] == "RayService":
                return schema_of(document)
        except (KeyError, TypeError):
            continue
    raise ConfigError(
        [
            f"--crd {path}: must hold KubeRay's CustomResourceDefinition of RayService with"
            " version v1, as `kubectl get crd rayservices.ray.io -o yaml` prints it"
        ]
    )


def schema_problems(manifest: dict[str, Any], crd: Mapping[str, Any] | None = None) -> list[str]:
    """Unknown and missing keys and wrong types, down to the pod templates.

    Args:
        crd: what ``read_crd`` returned; None: the schema that is shipped.
    """
    return problems_by(_shipped() if crd is None else Draft202012Validator(crd), manifest)


def problems_by(validator: Draft202012Validator, manifest: Any) -> list[str]:
    """A line for each thing that a closed schema has against ``manifest``."""
    errors = sorted(validator.iter_errors(manifest), key=_place)
    return [problem for error in errors for problem in _lines(error)]


def _place(error: ValidationError) -> str:
    return join("", error.absolute_path)


def _lines(error: ValidationError) -> list[str]:
    place = _place(error)
    value: Any = error.instance
    schema: Any = error.schema
    if error.validator == "additionalProperties":
        allowed = schema["properties"]
        return [unknown_key(place, str(key), allowed) for key in value if key not in allowed]
    if error.validator == "required":
        missing = [key for key in schema["required"] if key not in value]
        return [f"{join(place, [key])}: required key is missing" for key in missing]
    if error.validator == "type":
        told = schema["type"]
        wanted = told if isinstance(told, str) else next(one for one in told if one != "null")
        return [line(place, value, f"must be {WORDS.get(wanted, wanted)}")]
    if error.validator == "anyOf":
        return [line(place, value, "must be a number or a quantity such as 500m or 16Gi")]
    if error.validator == "enum":
        return [line(place, value, "must be " + " or ".join(map(repr, schema["enum"])))]
    return [f"{place}: {error.message}"]
