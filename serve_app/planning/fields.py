"""Keys of a config.json: read once, typed, and named in the error if one is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.errors import ConfigError
from controller.validation import shown

MOST = 10_000_000_000  # largest size in a config.json


@dataclass(frozen=True, slots=True)
class Fields:
    """The keys of one mapping.

    Args:
        where: the file, and the key of a nested mapping, as errors name it.
    """

    data: Mapping[str, Any]
    where: str

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of these keys that is set: a whole number from 0.

        Raises:
            ConfigError: none is set and there is no default, or it is no such number.
        """
        name, value = self._first(names)
        if value is None:
            if default is None:
                raise ConfigError([f"{self.where}: {' or '.join(names)}: required key is missing"])
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
            raise self.wrong(name, value, f"a whole number from 0 to {MOST:,}")
        return value

    def size(self, *names: str, default: int | None = None) -> int:
        """As ``integer``, from 1."""
        found = self.integer(*names, default=default)
        if not found:
            raise self.wrong(self._first(names)[0], found, "a whole number from 1")
        return found

    def text(self, *names: str, default: str = "") -> str:
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, value, "text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self.wrong(name, value, "a list of texts")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self.data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(type(one) is int for one in value):
            raise self.wrong(name, value, "a list of whole numbers")
        return tuple(value)

    def nested(self, name: str) -> "Fields | None":
        """The mapping at a key; None if it is not set."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, value, "a mapping")
        return Fields(value, f"{self.where}: {name}")

    def wrong(self, name: str, value: Any, allowed: str) -> ConfigError:
        """The error for a value that is not allowed."""
        return ConfigError([f"{self.where}: {name}: {shown(value)} is not allowed: {allowed}"])

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if self.data.get(name) is not None:
                return name, self.data[name]
        return names[0], None
