"""Check a Ray Serve configuration: Serve's own schema, then our applications down to our blocks."""

from collections.abc import Mapping
from typing import Any

from ray.serve.schema import (
    ServeApplicationSchema,
    ServeDeploySchema,
    _route_prefix_format,
)

from controller.validation import join
from serve_app.checks.args import check_args
from serve_app.checks.batches import BATCHES, check_batches
from serve_app.checks.built import Built, override_problems
from serve_app.checks.clocks import serve_clocks
from serve_app.checks.console import CONSOLE, check_console
from serve_app.checks.deployment import deployment_problems, env_problems
from serve_app.checks.findings import BUILDER, Findings, Target, builder_of
from serve_app.checks.keys import unknown_keys, without
from serve_app.checks.llm import describe
from serve_app.checks.objects import listed
from serve_app.checks.room import check_nodes
from serve_app.checks.scaling import scaling_notes, scaling_problems
from serve_app.checks.shapes import REFINEMENTS
from serve_app.checks.theirs import BUILDERS, check_theirs
from serve_app.checks.values import kind_of, line, value_problems
from serve_app.pd import NAME_PREFIX, ROLES

ASKED_BY_HTTP = (BUILDER, BATCHES, CONSOLE, *BUILDERS)
Placed = tuple[str, list[Any], Built]


def check_serve(config: Any, where: str, target: Target, findings: Findings) -> list[Placed]:
    """Report everything wrong with ``config``: what ``serve deploy`` would be given.

    Returns:
        For each application of ours its place, its ``deployments`` and what it comes to.
    """
    if not isinstance(config, dict):
        findings.add([f"{where or 'top level'}: must be a mapping, got {kind_of(config)}"])
        return []
    if "applications" not in config and "import_path" in config:
        findings.add(
            [
                f"{join(where, ['applications'])}: required key is missing; Ray Serve no longer"
                " takes a single application at the top level: put it into this list"
            ]
        )
        return check_serve({"applications": [config]}, where, target, findings)
    unknown = unknown_keys(config, ServeDeploySchema, REFINEMENTS)
    findings.add([key.line(where) for key in unknown])
    config = without(config, unknown)
    stray = _stray_deployments(config, where)
    findings.add(stray or value_problems(ServeDeploySchema, config, where))
    own = {key: value for key, value in config.items() if key != "applications"}
    findings.add(env_problems(own, where, local_paths=target.local_paths))
    if config.get("applications") == []:
        findings.notes.append("applications: none; deploying this removes all that run")
    applications = listed(config, "applications")
    asked = any(builder_of(one) in ASKED_BY_HTTP for _, one in applications)
    if asked and config.get("proxy_location") == "Disabled":
        why = "without a proxy no request gets in; allowed: EveryNode, HeadOnly"
        findings.add([line(join(where, ["proxy_location"]), "Disabled", why)])
    placed: list[Placed] = []
    for index, application in applications:
        place, every = join(where, ["applications", index]), [one for _, one in applications]
        built = _check_application(dict(application), place, every, target, findings)
        placed.append((place, _overrides(application), built))
    check_nodes(placed, target, findings)
    findings.notes.extend(serve_clocks(config, where, placed))
    return placed


def _overrides(application: Mapping[str, Any]) -> list[Any]:
    given = application.get("deployments")
    return given if isinstance(given, list) else []


def _stray_deployments(config: Any, where: str) -> list[str]:
    """Ray's own schema stumbles on a deployment that is no mapping, and does not say where."""
    return [
        f"{join(where, ['applications', index, 'deployments', k])}: must be a mapping, got"
        f" {kind_of(one)}"
        for index, application in listed(config, "applications")
        for k, one in enumerate(_overrides(application))
        if not isinstance(one, dict)
    ]


def _check_application(
    application: dict[str, Any],
    where: str,
    all_of_them: list[Any],
    target: Target,
    findings: Findings,
) -> Built:
    before = len(findings.problems)
    for index, deployment in listed(application, "deployments"):
        place, local = join(where, ["deployments", index]), target.local_paths
        findings.add(deployment_problems(dict(deployment), place, local_paths=local))
    own = {key: value for key, value in application.items() if key != "deployments"}
    findings.add(env_problems(own, where, local_paths=target.local_paths))
    route = application.get("route_prefix")
    if isinstance(route, str):
        findings.add(_route_problems(route, f"{where}.route_prefix"))
    built = Built()
    about = f"{application.get('import_path')}, checked by Ray Serve's schema only"
    builder = builder_of(application)
    if builder in BUILDERS:
        check_theirs(builder, application.get("args"), f"{where}.args", target, findings)
        about = f"{builder}, Ray Serve LLM's own: without our control"
    if builder == BUILDER:
        built = check_args(application.get("args"), f"{where}.args", target, findings)
        _check_overrides(application, built, where, findings)
    if builder == CONSOLE:
        about = check_console(application, where, all_of_them, target, findings)
    if builder == BATCHES:
        about = check_batches(application, where, all_of_them, target, findings)
    if len(findings.problems) == before:
        halves = (ROLES.get(key) for key in built.places)
        each = zip(halves, built.entries, strict=True)
        about = (
            "; ".join((f"{half}: " if half else "") + describe(one) for half, one in each) or about
        )
        name, route = (_given(application, key) for key in ("name", "route_prefix"))
        findings.summary.append(f"{name} at {route}: {about}")
    return built


def _check_overrides(
    application: dict[str, Any], built: Built, where: str, findings: Findings
) -> None:
    overrides, place = _overrides(application), f"{where}.deployments"
    findings.add(override_problems(overrides, built, place))
    entries = built.entries
    for key, entry in zip(built.places, entries, strict=True):
        its = _of_role(overrides, key)
        findings.add(scaling_problems(its, [entry], place))
        findings.notes.extend(scaling_notes(entry, its, f"{where}.args.{key}", place))
    if application.get("autoscaling_policy") is not None and entries:
        findings.notes.append(
            f"{where}.autoscaling_policy: decides in the place of each model's; scaling has no"
            " effect"
        )


def _of_role(overrides: list[Any], key: str) -> list[Any]:
    """The overrides, without those of the other half where prefill and decode are apart."""
    if key not in ROLES:
        return overrides
    prefix = NAME_PREFIX[ROLES[key]]
    # The others leave a gap: places are counted by it.
    return [
        one if isinstance(one, dict) and str(one.get("name")).startswith(prefix) else None
        for one in overrides
    ]


def _route_problems(route: str, where: str) -> list[str]:
    """Serve's own rule for a route, which it applies to running applications only."""
    try:
        _route_prefix_format(None, route)
    except ValueError as error:
        return [line(where, route, str(error))]
    return []


def _given(application: dict[str, Any], key: str) -> Any:
    return application.get(key, ServeApplicationSchema.model_fields[key].default)
