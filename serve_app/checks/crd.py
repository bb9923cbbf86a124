"""Check a RayService against KubeRay's own schema of it (see ``compact_crd.py``)."""

import json
from functools import cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from controller.validation import join, unknown_key
from serve_app.checks.values import line

WORDS = {"object": "a mapping", "array": "a list", "string": "a string (quote it)"}


@cache
def _validator() -> Draft202012Validator:
    text = resources.files("serve_app.checks").joinpath("rayservice.json").read_text()
    return Draft202012Validator(json.loads(text))


def schema_problems(manifest: dict[str, Any]) -> list[str]:
    """Unknown and missing keys and wrong types, down to the pod templates."""
    errors = sorted(_validator().iter_errors(manifest), key=_place)
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
        wanted = str(schema["type"])
        return [line(place, value, f"must be {WORDS.get(wanted, wanted)}")]
    if error.validator == "anyOf":
        return [line(place, value, "must be a number or a quantity such as 500m or 16Gi")]
    return [f"{place}: {error.message}"]
