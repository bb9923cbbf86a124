"""Check a Ray Serve configuration: Serve's own schema, then our applications down to our blocks."""

from collections.abc import Mapping, Sequence
from typing import Any

from ray.serve.schema import ServeDeploySchema, _route_prefix_format

from controller.validation import join
from serve_app.batches.arguments import settings_of
from serve_app.checks.built import Built, Placed, override_problems
from serve_app.checks.clocks import serve_clocks
from serve_app.checks.entries import check_args, describe
from serve_app.checks.findings import (
    BATCHES,
    BUILDER,
    CONSOLE,
    Findings,
    Target,
    builder_of,
    line,
)
from serve_app.checks.objects import dig, listed, mapping
from serve_app.checks.quick import shape_problems
from serve_app.checks.room import check_nodes
from serve_app.checks.shapes import unknown_keys
from serve_app.checks.values import (
    call_problems,
    deployment_problems,
    env_problems,
    value_problems,
)
from serve_app.config import SECURITY
from serve_app.console.arguments import keys_of, says_who
from serve_app.pd import ROLES, entries_of

LOOPBACK = ("127.", "localhost", "::1")


def check_serve(config: Any, where: str, target: Target, findings: Findings) -> list[Placed]:
    """Report everything wrong with ``config``, the input of ``serve deploy``.

    Returns:
        For each application its place and its models.
    """
    if shape := shape_problems(config, where):
        findings.add(shape)
        return []
    findings.add(unknown_keys(config, ServeDeploySchema, where))
    findings.add(value_problems(ServeDeploySchema, config, where))
    applications = listed(config, "applications")
    findings.notes.extend(
        ["applications: none; deploying this removes all running applications"]
        if config.get("applications") == []
        else []
    )
    if config.get("proxy_location") == "Disabled":
        why = "without a proxy no request gets in; allowed: EveryNode, HeadOnly"
        findings.add([line(join(where, ["proxy_location"]), "Disabled", why)])
    host = str(dig(config, "http_options", "host"))
    if where and host.startswith(LOOPBACK):
        why = "Services come from outside the pod; allowed: 0.0.0.0"
        findings.add([line(join(where, ["http_options", "host"]), host, why)])
    placed: list[Placed] = []
    for index, application in applications:
        place, every = join(where, ["applications", index]), [one for _, one in applications]
        built = _check_application(dict(application), place, every, target, findings)
        placed.append((place, built))
    check_nodes(placed, target, findings)
    findings.notes.extend(serve_clocks(config, where, placed))
    return placed


def _check_application(
    application: dict[str, Any],
    where: str,
    all_of_them: list[Any],
    target: Target,
    findings: Findings,
) -> Built:
    before, local_paths = len(findings.problems), target.local_paths
    for index, deployment in listed(application, "deployments"):
        place = join(where, ["deployments", index])
        findings.add(deployment_problems(dict(deployment), place, local_paths=local_paths))
    findings.add(env_problems(application, where, local_paths=local_paths))
    route = application.get("route_prefix")
    if isinstance(route, str):  # Serve's own rule, which it applies to running applications only
        at = f"{where}.route_prefix"
        findings.add(call_problems(lambda: _route_prefix_format(None, route), route, at))
    built, builder = Built(), builder_of(application)
    about = f"{application.get('import_path')}, checked by Ray Serve's schema only"
    if builder == BUILDER:
        built = check_args(application.get("args"), f"{where}.args", target, findings)
        findings.add(override_problems(listed(application, "deployments"), built, where))
    if builder == CONSOLE:
        about = _check_console(application, where, all_of_them, findings)
    if builder == BATCHES:
        about = _check_batches(application, where, all_of_them, findings)
    if len(findings.problems) == before:
        each = [
            (f"{ROLES[key]}: " if key in ROLES else "") + describe(entry)
            for key, entry in built.entries.items()
        ]
        name, route = application.get("name", "default"), application.get("route_prefix", "/")
        findings.summary.append(f"{name} at {route}: {'; '.join(each) or about}")
    return built


def _check_console(
    application: Mapping[str, Any], where: str, others: Sequence[Any], findings: Findings
) -> str:
    """Report what is wrong with the console's arguments: a fleet that needs keys is not shown
    without keys, unless the arguments say so.

    Args:
        others: the applications of the same file.

    Returns:
        What it is, in a few words.
    """
    args, keys = application.get("args") or {}, None
    with findings.collecting():
        keys = keys_of(args, f"{where}.args")
    asking = [one.get("name", "default") for one in others if dig(one, "args", SECURITY, "keys")]
    if asking and not says_who(args):
        findings.add(
            [
                f"{where}.args.{SECURITY}.keys: required key is missing: application"
                f" {asking[0]!r} asks for keys, and the console would show its models and load"
                " to everyone; name the keys here too (null: no key is needed)"
            ]
        )
    return (
        "the console, which shows the fleet to everyone who"
        f" {'has a key' if keys else 'reaches it'}"
    )


def _check_batches(
    application: Mapping[str, Any], where: str, others: Sequence[Any], findings: Findings
) -> str:
    """Report what is wrong with the arguments: the classes that they name must exist, if
    applications of the file have classes.

    Args:
        others: the applications of the same file.

    Returns:
        What it is, in a few words.
    """
    place, settings = f"{where}.args", None
    with findings.collecting():
        settings = settings_of(application.get("args") or {}, place)
    if settings is None:
        return "batches"
    classes = set()
    for entry in (entry for one in others for _, entry in entries_of(dig(one, "args"))):
        for name, one in mapping(entry, "classes").items():
            aliases = dig(one, "aliases")
            classes |= {str(name), *map(str, aliases if isinstance(aliases, list) else ())}
    allowed = f"allowed: {', '.join(sorted(classes))}"
    if classes and settings.service_tier is None:
        findings.add(
            [
                f"{place}.service_tier: required key is missing: without it requests of batches"
                f" have the default class, and online requests do not go first; {allowed}"
            ]
        )
    for key in ("service_tier", "urgent_tier"):
        tier = getattr(settings, key)
        if classes and tier is not None and tier not in classes:
            findings.add([f"{place}.{key}: {tier!r} is not allowed: no such class; {allowed}"])
    return f"batches of requests for {settings.serves}, kept in {settings.folder}"
