"""What the console's application may be given. Pure."""

from collections.abc import Mapping
from typing import Any

from controller.errors import ConfigError
from controller.validation import shown, unknown_key
from replicas.door.settings import KeysFrom, parse_security

SECURITY = "security"
KNOWN = ("keys",)


def keys_of(args: Any, where: str = "args") -> KeysFrom | None:
    """The place of the keys, one of which is needed; None: no key is needed.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    if not isinstance(args, Mapping):
        raise ConfigError([f"{where}: {shown(args)} is not allowed: a mapping"])
    found = [unknown_key(where, str(key), (SECURITY,)) for key in args if key != SECURITY]
    block = args.get(SECURITY)
    if isinstance(block, Mapping):
        place = f"{where}.{SECURITY}"
        found += [unknown_key(place, str(key), KNOWN) for key in block if key not in KNOWN]
    if found:
        raise ConfigError(found)
    return parse_security(block, f"{where}.{SECURITY}").keys


def says_who(args: Any) -> bool:
    """Whether the arguments say who may see it, even if all may (``security: {keys: null}``)."""
    block = args.get(SECURITY) if isinstance(args, Mapping) else None
    return isinstance(block, Mapping) and "keys" in block
