"""Keys of our blocks that were removed: for one release they are told from unknown ones."""

from collections.abc import Mapping
from typing import Any

from controller.errors import ConfigError


def refuse_removed(data: Any, removed: Mapping[str, str], where: str) -> None:
    """Refuse keys that were removed.

    Args:
        removed: by key, what holds in its place.

    Raises:
        ConfigError: naming each of them.
    """
    given = data if isinstance(data, Mapping) else {}
    if found := [
        f"{where}.{key}: {given[key]!r} is not allowed: it was removed, {instead}; leave it out"
        for key, instead in removed.items()
        if key in given
    ]:
        raise ConfigError(found)
