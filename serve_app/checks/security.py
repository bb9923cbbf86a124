"""Check an application's ``security`` block, as far as this machine has what it names."""

import os
from collections.abc import Iterable

from controller.errors import ConfigError
from replicas.door.key_source import read_keys
from replicas.door.settings import Security
from serve_app.checks.findings import Findings, Target


def check_security(
    security: Security, models: Iterable[Iterable[str]], where: str, target: Target, found: Findings
) -> None:
    """Report what is wrong with the keys; never a key.

    Args:
        models: the names of each model's classes; none where it has none.
    """
    source = security.keys
    if source is None:
        return
    place = source.file or f"${source.env}"
    there = bool(source.env) and source.env in os.environ
    if source.file:
        there = os.path.exists(source.file)  # noqa: PTH110 - Path's raises for a name too long
    if not target.local_paths or not there:
        found.notes.append(f"{where}.keys: {place} is not on this machine and was not checked")
        return
    try:
        ring = read_keys(source)
    except ConfigError as error:
        found.add([f"{where}.keys: {problem}" for problem in error.problems])
        return
    for classes in models:
        known = set(classes)
        for key in ring.keys:
            if known and (unknown := [name for name in key.classes if name not in known]):
                found.notes.append(
                    f"{where}.keys: {place}: key {key.name!r} names classes that a model does not"
                    f" have: {', '.join(unknown)}"
                )
