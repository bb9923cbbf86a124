"""Bearer keys by name. Pure. No message of this module repeats the contents of a file."""

import re
import secrets
from dataclasses import dataclass, field
from hashlib import sha256

from controller.classes import NAME
from controller.errors import ConfigError

LEAST_LENGTH = 16  # of a key; shorter ones can be guessed
# What RFC 6750 allows after "Bearer".
KEY = re.compile(rf"[A-Za-z0-9._~+/-]{{{LEAST_LENGTH},512}}={{0,2}}")
HASHED = "sha256:"
DIGEST = re.compile(r"[0-9a-fA-F]{64}")
COUNT = re.compile(r"[1-9][0-9]{0,8}")
MOST_KEYS = 10_000
LINE = "NAME KEY [classes=A,B] [max_in_flight=N]"
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
    """The keys in a file's or variable's text: a line for each (``LINE``; semicolons end a line,
    too; ``#`` begins a comment).

    Raises:
        ConfigError: each problem with its place, without the text that is there.
    """
    entries = [
        (number, words)
        for number, line in enumerate(text.splitlines(), 1)
        for part in line.partition("#")[0].split(";")
        if (words := part.split())
    ]
    found: list[str] = []
    keys: list[Key] = []
    for number, words in entries:
        try:
            keys.append(_key(words, f"{where}: line {number}"))
        except ConfigError as error:
            found += error.problems
    if len(entries) > MOST_LINES and not keys:
        raise ConfigError([f"{where}: none of {len(entries)} lines is a key: {LINE}"])
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


def _key(words: list[str], place: str) -> Key:
    name, key, *rest = *words, ""
    hashed = key.startswith(HASHED)
    options = dict(word.partition("=")[::2] for word in filter(None, rest))
    classes = options.get("classes", "").split(",") if "classes" in options else []
    most = options.get("max_in_flight")
    found = []
    if not NAME.fullmatch(name):
        found.append("name: must be up to 64 letters, digits, . _ -")
    if not key:
        found.append("needs the key, or sha256: and its digest")
    elif hashed and not DIGEST.fullmatch(key.removeprefix(HASHED)):
        found.append("sha256: must be 64 hexadecimal digits")
    elif not (hashed or KEY.fullmatch(key)):
        found.append(f"key: must be {LEAST_LENGTH} to 512 letters, digits, - . _ ~ + /")
    if options.keys() - {"classes", "max_in_flight"}:
        found.append(f"has an option that is not known: {LINE}")
    if not all(map(NAME.fullmatch, classes)):
        found.append("classes: must be names with commas between them; without it, any")
    if most is not None and not COUNT.fullmatch(most):
        found.append("max_in_flight: must be a whole number from 1")
    if found:
        raise ConfigError([f"{place}: {problem}" for problem in found])
    digest = bytes.fromhex(key.removeprefix(HASHED)) if hashed else sha256(key.encode()).digest()
    return Key(name, digest, tuple(classes), None if most is None else int(most))
