"""Removed keys of our blocks: for one release their error differs from that of unknown keys."""

from collections.abc import Mapping
from typing import Any

from controller.errors import ConfigError


def refuse_removed(data: Any, removed: Mapping[str, str], where: str) -> None:
    """Refuse keys that were removed.

    Args:
        removed: by key, what replaces it.

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
