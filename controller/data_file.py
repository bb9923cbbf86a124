"""JSON files that people write; errors name the file and the field."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from controller.errors import ConfigError
from controller.validation import problems

M = TypeVar("M", bound=BaseModel)


def read_text(path: Path) -> str:
    """The file's text.

    Raises:
        ConfigError: there is no such file, or it is not text.
    """
    return text_of(path.read_bytes, f"{path}: ")


def text_of(read: Callable[[], bytes], place: str) -> str:
    """UTF-8 text from a person, without the byte-order mark of some editors.

    Args:
        place: prefix of an error.

    Raises:
        ConfigError: it cannot be read, or it is not text.
    """
    try:
        return read().decode("utf-8-sig")
    except OSError as error:
        said = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        said = f"byte {error.start} is not UTF-8 text"
    except ValueError:
        said, place = "cannot be read: no file can have this name", ascii(place)[1:-1]
    raise ConfigError([f"{place}{said}"])


def read_json(path: Path, model: type[M]) -> M:
    """The file as a ``model``.

    Raises:
        ConfigError: one line per problem, ``FILE: FIELD: what is wrong and what is allowed``.
    """
    return _validated(load_json(read_text(path), f"{path}", 1), model, f"{path}")


def parse_json_line(text: str, model: type[M], file: str, line: int) -> M:
    """One line of a JSONL file as a ``model``.

    Raises:
        ConfigError: ``FILE:LINE: FIELD: ...``, one line per problem.
    """
    return _validated(load_json(text, file, line), model, f"{file}:{line}")


def load_json(text: str, file: str, first_line: int) -> Any:
    """Parsed JSON; infinities, NaN and duplicate keys are refused.

    Raises:
        ConfigError: with the line and column where the text stops being JSON, or with the key.
    """

    def refuse(constant: str) -> float:
        raise ConfigError([f"{file}:{first_line}: {constant} is not allowed: a finite number"])

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for n, (key, _) in enumerate(pairs) if key in dict(pairs[:n]))
            raise ConfigError([f"{file}:{first_line}: key {twice!r} is given twice"])
        return found

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise ConfigError([f"{file}:{line}: not JSON: {error.msg}, column {error.colno}"]) from None
    except ConfigError:
        raise
    except ValueError:  # Python's own limit
        raise ConfigError([f"{file}:{first_line}: a number has more than 4,300 digits"]) from None
    except RecursionError:
        raise ConfigError([f"{file}:{first_line}: nested too deeply to be read"]) from None


def _is_file(name: str) -> bool:
    """``os.path.isfile``, also for a name that no file can have."""
    return os.path.isfile(name)  # noqa: PTH113 - Path's raises for one that is too long


def split_spec(spec: str) -> tuple[Path | None, str | None]:
    """``FILE[:NAME]`` in parts; no path if it does not look like a file."""
    if _is_file(spec):
        return Path(spec), None
    file, colon, name = spec.rpartition(":")
    if colon and _is_file(file):
        return Path(file), name
    looks_like_file = spec.endswith((".json", ".jsonl")) or "/" in spec
    return (Path(spec), None) if looks_like_file else (None, None)


def _validated(data: Any, model: type[M], place: str) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError([f"{place}: {p}" for p in problems(error, model, "")]) from None
