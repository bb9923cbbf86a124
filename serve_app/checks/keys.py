"""Find keys that nobody reads, in plain data described by pydantic models and dataclasses."""

import dataclasses
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from controller.validation import join
from serve_app.replaced import unknown_line

Path = tuple[str | int, ...]


@dataclass(frozen=True, eq=False)
class Fields:
    """A mapping that no class describes: its keys, and the annotation of each one's value."""

    keys: Mapping[str, Any]


# (class, field) to the annotation that tells more about its contents than the class's own.
Refinements = Mapping[tuple[Any, str], Any]


@dataclass(frozen=True)
class UnknownKey:
    """A key that is not among the ``allowed`` ones of its place."""

    path: Path
    allowed: tuple[str, ...]

    def line(self, where: str) -> str:
        """The problem in words, with the nearest valid key."""
        return unknown_line(join(where, self.path[:-1]), str(self.path[-1]), self.allowed)


def unknown_keys(data: Any, kind: Any, refine: Refinements, path: Path = ()) -> list[UnknownKey]:
    """Every key in ``data`` that ``kind`` does not know, however deep.

    Args:
        kind: an annotation: a pydantic model, a dataclass, ``Fields``, or lists, mappings and
            unions of them. Below any other annotation everything is free.
    """
    return list(_walk(data, kind, refine, path))


def _walk(data: Any, kind: Any, refine: Refinements, path: Path) -> Iterator[UnknownKey]:
    kind = choose(kind, data)
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(data, list) and origin is list and args:
        for index, item in enumerate(data):
            yield from _walk(item, args[0], refine, (*path, index))
    elif isinstance(data, dict) and origin is dict and args:
        for key, value in data.items():
            yield from _walk(value, args[1], refine, (*path, key))
    elif isinstance(data, dict) and (fields := fields_of(kind)) is not None:
        for key, value in data.items():
            if key in fields:
                inner = refine.get((kind, key), fields[key])
                yield from _walk(value, inner, refine, (*path, key))
            else:
                public = tuple(name for name in fields if not name.startswith("_"))
                yield UnknownKey((*path, key), public)


def fields_of(kind: Any) -> Mapping[str, Any] | None:
    """Keys and annotations of what ``kind`` describes; None where any key is allowed."""
    if isinstance(kind, Fields):
        return kind.keys
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind.model_config.get("extra") == "allow":
            return None
        return {info.alias or name: info.annotation for name, info in kind.model_fields.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        # A type that is still text belongs to a module that postpones annotations: free below.
        return {
            field.name: Any if isinstance(field.type, str) else field.type
            for field in dataclasses.fields(kind)
            if field.init
        }
    return None


def without(data: Any, unknown: list[UnknownKey]) -> Any:
    """A copy of ``data`` without the unknown keys, so that the rest can be validated too."""
    paths = {found.path for found in unknown}

    def copy(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {k: copy(v, (*path, k)) for k, v in value.items() if (*path, k) not in paths}
        if isinstance(value, list):
            return [copy(item, (*path, index)) for index, item in enumerate(value)]
        return value

    return copy(data, ())


def choose(kind: Any, data: Any) -> Any:
    """The member of a union that ``data`` is meant for; the kind itself where it is no union."""
    origin = get_origin(kind)
    if origin is Annotated:
        return choose(get_args(kind)[0], data)
    if origin not in (Union, types.UnionType):
        return kind
    members = [choose(member, data) for member in get_args(kind)]
    if isinstance(data, dict):
        described = [member for member in members if fields_of(member) is not None]
        tagged = [member for member in described if _tag_matches(member, data)]
        mappings = [member for member in members if get_origin(member) is dict]
        return next(iter(tagged or described or mappings), Any)
    if isinstance(data, list):
        return next((member for member in members if get_origin(member) is list), Any)
    return Any


def _tag_matches(kind: Any, data: dict[Any, Any]) -> bool:
    fields = fields_of(kind) or {}
    tags = {name: choose(annotation, None) for name, annotation in fields.items()}
    literals = {name: get_args(a) for name, a in tags.items() if get_origin(a) is Literal}
    return any(name in data and data[name] in allowed for name, allowed in literals.items())
