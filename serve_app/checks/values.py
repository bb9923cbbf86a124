"""Validate plain data by somebody else's pydantic model; one line per finding."""

import json
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError

from controller.validation import join, shown

# Reported with their nearest valid key by ``keys``.
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def value_problems(kind: Any, data: Any, where: str) -> list[str]:
    """What ``kind`` (a model, dataclass or annotation) has against ``data``, but unknown keys."""
    return call_problems(lambda: TypeAdapter(kind).validate_python(data), data, where)


def call_problems(validate: Callable[[], Any], data: Any, where: str) -> list[str]:
    """What a call that validates ``data`` has against it.

    Such calls also import classes and policies by name, so any error is a finding.
    """
    try:
        validate()
    except ValidationError as error:
        return _lines(error, data, where)
    except Exception as error:
        return [f"{where}: {type(error).__name__}: {_one_line(error)}"]
    return []


def line(where: str, value: Any, message: str) -> str:
    """``place: value is not allowed: message``; without the value where it is a whole block."""
    scalar = value is None or isinstance(value, str | int | float)
    return f"{where}: {shown(value)} is not allowed: {message}" if scalar else f"{where}: {message}"


def kind_of(value: Any) -> str:
    """The beginning of a value that is of the wrong kind, for a line about it."""
    return "nothing" if value is None else json.dumps(value, default=str)[:40]


def _lines(error: ValidationError, data: Any, where: str) -> list[str]:
    found = []
    for item in error.errors():
        if item["type"] in UNKNOWN_KEY:
            continue
        path = _path(item["loc"], data)
        if item["type"] in ("missing", "missing_argument"):
            found.append(f"{join(where, [*path, item['loc'][-1]])}: required key is missing")
            continue
        place = join(where, path)
        cause = getattr(item.get("ctx", {}).get("error"), "__cause__", None)
        if isinstance(cause, ValidationError):  # Ray wraps a model's error in another's
            found += _lines(cause, item["input"], place)
        else:
            message = _one_line(cause) if cause else item["msg"]
            for prefix in ("Value error, ", "Assertion failed, "):
                message = message.removeprefix(prefix)
            found.append(line(place, item["input"], message))
    return found


def _path(location: tuple[int | str, ...], data: Any) -> list[int | str]:
    """The parts of pydantic's location that are keys of ``data``; the rest name union members."""
    path: list[int | str] = []
    for part in location:
        inner = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(inner, dict) and part in inner:
            data = inner[part]
            path.append(part)
    return path


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
