"""Turns pydantic's errors into one line per problem: key, value, what is allowed."""

import difflib
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ValidationError

from controller.errors import ConfigError

M = TypeVar("M", bound=BaseModel)

MOST_NAMES = 40  # longer lists are not readable (vLLM has some 250 engine arguments)
MOST_SHOWN = 120  # characters of a value in a message


def parse(model: type[M], data: Any, where: str) -> M:
    """Validate ``data`` as ``model``; every problem names its place under ``where``.

    Raises:
        ConfigError: with all problems of ``data`` together.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(problems(error, model, where)) from None


def problems(error: ValidationError, model: type[BaseModel], where: str) -> list[str]:
    """One line per error, in the form ``place: value ...: what is allowed``."""
    lines = []
    for found in error.errors():
        path = found["loc"]
        place = join(where, path)
        if found["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            lines.append(unknown_key(join(where, path[:-1]), str(path[-1]), keys_at(model, path)))
        elif found["type"] == "missing":
            lines.append(f"{place}: required key is missing")
        else:
            message = found["msg"].removeprefix("Value error, ")
            lines.append(f"{place}: {shown(found['input'])} is not allowed: {message}")
    return lines


def unknown_key(place: str, key: str, allowed: Iterable[str]) -> str:
    """The line for an unknown key, with the nearest valid one if there is one."""
    return f"{place or 'top level'}: unknown key {shown(key)}; {nearest(key, allowed)}"


def shown(value: Any) -> str:
    """A value in a message: as Python writes it, shortened."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply; a number of too many digits
        return f"this {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def nearest(name: str, allowed: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest valid one, or all if none is near."""
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    if len(names) > MOST_NAMES:
        return f"none of the {len(names)} allowed ones is near it"
    return f"allowed: {', '.join(names)}"


def join(where: str, path: Iterable[str | int]) -> str:
    """``a`` and ``('b', 0, 'c')`` make ``a.b[0].c``."""
    for part in path:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    return where


def keys_at(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """The keys allowed next to the last part of ``path``, walking nested models.

    A model's ``shorthand`` names keys that it takes for fields further down.
    """
    current: type | None = model
    in_collection = False
    for part in path[:-1]:
        if in_collection:  # this part is a name or an index in the collection
            in_collection = False
            continue
        annotation = _annotations(current).get(str(part))
        current = nested_model(annotation)
        in_collection = _is_collection(annotation)
    return [*_annotations(current), *getattr(current, "shorthand", ())]


def _annotations(model: type | None) -> dict[str, Any]:
    """The fields of a model or dataclass."""
    if model is None:
        return {}
    if issubclass(model, BaseModel):
        return {name: field.annotation for name, field in model.model_fields.items()}
    return get_type_hints(model)


def _is_collection(annotation: Any) -> bool:
    """Whether ``annotation`` is, or may be, a dict, list or tuple."""
    return any(
        get_origin(kind) in (dict, list, tuple) for kind in (annotation, *get_args(annotation))
    )


def nested_model(annotation: Any) -> type | None:
    """The pydantic model or dataclass inside an annotation such as ``Sla | None``, if any."""
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or is_dataclass(annotation)
    ):
        return annotation
    return next((m for arg in get_args(annotation) if (m := nested_model(arg))), None)
