"""Check the batch application: its settings, and that one class is there for it."""

from collections.abc import Mapping, Sequence
from typing import Any

from replicas.door.settings import Security
from serve_app.batches.arguments import BatchSettings, settings_of
from serve_app.checks.findings import Findings, Target
from serve_app.checks.security import check_security

BATCHES = "serve_app.batches:build"


def check_batches(
    application: dict[str, Any],
    where: str,
    others: Sequence[Any],
    target: Target,
    findings: Findings,
) -> str:
    """Report what is wrong with its arguments.

    Args:
        others: the applications of the same file.

    Returns:
        What it is, in a few words.
    """
    settings = None
    with findings.collecting():
        settings = settings_of(application.get("args") or {}, f"{where}.args")
    if settings is None:
        return "batches"
    if settings.security.keys is not None:
        security = Security(keys=settings.security.keys)
        check_security(security, [], f"{where}.args.security", target, findings)
    findings.add(_class_problems(settings, where, others))
    return f"batches of requests for {settings.serves}, kept in {settings.folder}"


def _class_problems(settings: BatchSettings, where: str, others: Sequence[Any]) -> list[str]:
    """The class that it names has to be one, where applications of the file have classes."""
    classes = {name for one in others for name in _classes_of(one)}
    tier = settings.service_tier
    if not classes or tier in classes:
        return []
    allowed = f"allowed: {', '.join(sorted(classes))}"
    if tier is not None:
        return [f"{where}.args.service_tier: {tier!r} is not allowed: no such class; {allowed}"]
    return [
        f"{where}.args.service_tier: required key is missing: without it requests of batches are"
        f" of the default class, before which online ones have no precedence; {allowed}"
    ]


def _classes_of(application: Any) -> list[str]:
    """Names and aliases of the classes of an application's entries."""
    args = application.get("args") if isinstance(application, Mapping) else None
    entries = args.get("llm_configs") if isinstance(args, Mapping) else None
    found: list[str] = []
    for entry in entries if isinstance(entries, Sequence) else ():
        classes = entry.get("classes") if isinstance(entry, Mapping) else None
        for name, one in classes.items() if isinstance(classes, Mapping) else ():
            aliases = one.get("aliases") if isinstance(one, Mapping) else None
            found += [str(name), *map(str, aliases if isinstance(aliases, list) else ())]
    return found
