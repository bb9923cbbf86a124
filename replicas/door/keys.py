"""Bearer keys by name. Pure. No message of this module repeats the contents of a file."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import yaml

from controller.classes import NAME
from controller.errors import ConfigError
from controller.yaml_text import Loader

LEAST_LENGTH = 16  # of a key; shorter ones can be guessed
# What RFC 6750 allows after "Bearer".
KEY = re.compile(rf"[A-Za-z0-9._~+/-]{{{LEAST_LENGTH},512}}={{0,2}}")
HASHED = "sha256:"
DIGEST = re.compile(r"[0-9a-fA-F]{64}")
MOST_KEYS = 10_000
OPTIONS = ("classes", "max_in_flight")
LINE = "NAME KEY [classes=A,B] [max_in_flight=N]"
ALLOWED = (
    "a mapping with `keys` alone, a list of {name, key or sha256, classes, max_in_flight};"
    f" or a line for each key: {LINE}"
)
NO_LINE = ("{", "[", '"', "'", "---", "keys:", "- ")  # beginnings of YAML and JSON
MOST_LINES = 3  # named one by one if no line is a key


@dataclass(frozen=True, slots=True)
class Key:
    """One client's key; only its digest is kept.

    Args:
        classes: classes that it may name, the default first; empty: any.
        max_in_flight: its requests that a process serves at once, at most; None: any number.
    """

    name: str
    digest: bytes = field(repr=False)
    classes: tuple[str, ...] = ()
    max_in_flight: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRing:
    """All valid keys."""

    keys: tuple[Key, ...]
    _by_digest: dict[bytes, Key] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_digest", {key.digest: key for key in self.keys})

    def find(self, token: bytes) -> Key | None:
        """The key that a client showed.

        The look-up time depends on a randomised hash of the digest, not on how much of a key
        agrees; the result is compared in constant time.
        """
        shown = sha256(token).digest()
        key = self._by_digest.get(shown)
        return key if key is not None and secrets.compare_digest(key.digest, shown) else None


def parse_keys(text: str, where: str) -> KeyRing:
    """The keys in a file's or variable's text: YAML (``keys: [{name, key | sha256, ...}]``), or a
    line for each (``LINE``; semicolons end a line, too; ``#`` begins a comment).

    Raises:
        ConfigError: each problem with its place, without the text that is there.
    """
    what = "YAML of another shape"
    try:
        data = yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        data, what = None, f"broken YAML{_line_of(error)}"
    structured = isinstance(data, dict | list) or _first(text).startswith(NO_LINE)
    if not structured:
        entries = _of_lines(text)
    elif isinstance(data, dict) and set(data) == {"keys"} and isinstance(data["keys"], list):
        entries = [(f"keys[{index}]", entry) for index, entry in enumerate(data["keys"])]
    else:
        raise ConfigError([f"{where}: keys: {what} is not allowed; allowed: {ALLOWED}"])
    found: list[str] = []
    keys: list[Key] = []
    for place, entry in entries:
        try:
            keys.append(_key(entry, f"{where}: {place}"))
        except ConfigError as error:
            found += error.problems
    if not structured and len(entries) > MOST_LINES and not keys:
        raise ConfigError([f"{found[0]}; nor is any other of {len(entries)} lines: {ALLOWED}"])
    if not entries:
        found.append(f"{where}: holds no key; a line for each: {LINE}")
    if len(entries) > MOST_KEYS:
        found.append(f"{where}: {len(entries)} keys; at most {MOST_KEYS} are allowed")
    for what, values in (("name", [k.name for k in keys]), ("key", [k.digest for k in keys])):
        if len(set(values)) < len(values):
            found.append(f"{where}: a {what} is given twice")
    if found:
        raise ConfigError(found)
    return KeyRing(tuple(keys))


def _line_of(error: Exception) -> str:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return "" if mark is None else f" (line {mark.line + 1})"


def _first(text: str) -> str:
    """The first line with text, comments aside."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


def _of_lines(text: str) -> list[tuple[str, Mapping[str, Any]]]:
    entries: list[tuple[str, Mapping[str, Any]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        for part in line.partition("#")[0].split(";"):
            words = part.split()
            if words:
                entries.append((f"line {number}", _of_words(words)))
    return entries


def _of_words(words: list[str]) -> Mapping[str, Any]:
    name, *rest = words
    entry: dict[str, Any] = {"name": name}
    if rest:
        hashed = rest[0].startswith(HASHED)
        entry["sha256" if hashed else "key"] = rest[0].removeprefix(HASHED)
    for word in rest[1:]:
        option, _, value = word.partition("=")
        if option == "classes":
            entry[option] = value.split(",")
        elif option == "max_in_flight" and value.isascii() and value.isdigit():
            entry[option] = int(value[:9])
        else:
            entry[""] = None
    return entry


def _key(entry: Any, place: str) -> Key:
    if not isinstance(entry, Mapping):
        raise ConfigError([f"{place}: must be a mapping with `name` and `key` or `sha256`"])
    found = []
    if set(entry) - {"name", "key", "sha256", *OPTIONS}:
        found.append(f"{place}: has a key that is not known")
    name, key, digest = entry.get("name"), entry.get("key"), entry.get("sha256")
    if not _is_name(name):
        found.append(f"{place}: name: must be up to 64 letters, digits, . _ -")
    if (key is None) == (digest is None):
        found.append(f"{place}: needs either the key or its sha256")
    elif digest is not None and not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
        found.append(f"{place}: sha256: must be 64 hexadecimal digits")
    elif key is not None and not (isinstance(key, str) and KEY.fullmatch(key)):
        found.append(
            f"{place}: key: must be text of {LEAST_LENGTH} to 512 letters, digits, - . _ ~ + /"
        )
    classes = entry.get("classes", ())
    named = isinstance(classes, list) and classes and all(map(_is_name, classes))
    if "classes" in entry and not named:  # an empty list would allow any
        found.append(f"{place}: classes: must be a list of one name or more; without it, any")
    most = entry.get("max_in_flight")
    if most is not None and (type(most) is not int or most < 1):
        found.append(f"{place}: max_in_flight: must be a whole number from 1")
    if found:
        raise ConfigError(found)
    assert isinstance(name, str)
    hashed = sha256(key.encode()).digest() if key is not None else bytes.fromhex(str(digest))
    return Key(name, hashed, tuple(classes), most)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None
