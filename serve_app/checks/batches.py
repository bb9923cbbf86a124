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
    scales: dict[str, set[bool]] = {}  # an application may share a class's name with another
    for name, counts in (found for one in others for found in _classes_of(one)):
        scales.setdefault(name, set()).add(counts)
    findings.add(_class_problems(settings, where, scales))
    if len(scales.get(settings.urgent_tier or "", ())) > 1:
        findings.notes.append(
            f"{where}.args.urgent_tier: {settings.urgent_tier!r} has autoscale: false in some"
            " applications and not in others; where it has, a batch that is late buys no replica"
        )
    return f"batches of requests for {settings.serves}, kept in {settings.folder}"


def _class_problems(
    settings: BatchSettings, where: str, classes: Mapping[str, set[bool]]
) -> list[str]:
    """The classes that it names have to be some, where applications of the file have classes.

    Args:
        classes: by name, whether they count for autoscaling, as each application has it.
    """
    if not classes:
        return []
    allowed = f"allowed: {', '.join(sorted(classes))}"
    if settings.service_tier is None:
        return [
            f"{where}.args.service_tier: required key is missing: without it requests of batches"
            f" are of the default class, before which online ones have no precedence; {allowed}"
        ]
    named = {"service_tier": settings.service_tier, "urgent_tier": settings.urgent_tier}
    found = [
        f"{where}.args.{key}: {tier!r} is not allowed: no such class; {allowed}"
        for key, tier in named.items()
        if tier is not None and tier not in classes
    ]
    if classes.get(settings.urgent_tier or "") == {False}:
        found.append(
            f"{where}.args.urgent_tier: {settings.urgent_tier!r} is not allowed: its class has"
            " autoscale: false, so a batch that is late would buy no replica"
        )
    return found


def _classes_of(application: Any) -> list[tuple[str, bool]]:
    """Names and aliases of the classes of an application's entries, and which count for scaling."""
    args = application.get("args") if isinstance(application, Mapping) else None
    entries = args.get("llm_configs") if isinstance(args, Mapping) else None
    found: list[tuple[str, bool]] = []
    for entry in entries if isinstance(entries, Sequence) else ():
        classes = entry.get("classes") if isinstance(entry, Mapping) else None
        for name, one in classes.items() if isinstance(classes, Mapping) else ():
            keys = one if isinstance(one, Mapping) else {}
            aliases = keys.get("aliases")
            names = [str(name), *map(str, aliases if isinstance(aliases, list) else ())]
            found += [(each, keys.get("autoscale") is not False) for each in names]
    return found
