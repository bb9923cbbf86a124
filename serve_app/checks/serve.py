"""Check a Ray Serve configuration: Serve's own schema, then our applications down to our blocks."""

import json
from pathlib import Path
from typing import Any

from ray.serve.schema import (
    ServeApplicationSchema,
    ServeDeploySchema,
    _route_prefix_format,
)

from controller.classes import AdmissionConfig
from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.validation import join
from replicas.door.settings import Security, parse_security
from replicas.settings import Live, parse_live
from serve_app.checks.console import CONSOLE, check_console
from serve_app.checks.deployment import deployment_problems
from serve_app.checks.findings import DIRECT_STREAMING, FORWARD_BODY, HA_PROXY, Findings, Target
from serve_app.checks.keys import unknown_keys, without
from serve_app.checks.llm import check_entry, describe
from serve_app.checks.scaling import override_problems, scaling_notes
from serve_app.checks.security import check_security
from serve_app.checks.shapes import ARGS, ENTRY, REFINEMENTS
from serve_app.checks.values import line, value_problems
from serve_app.config import SECURITY
from serve_app.source import read_documents

BUILDER = "serve_app:build_app"
INGRESS = ("ingress_cls_config", "ingress_deployment_config")
UNIQUE = ("name", "route_prefix")


def check_serve(config: Any, where: str, target: Target, findings: Findings) -> None:
    """Report everything wrong with ``config``: what ``serve deploy`` would be given."""
    if not isinstance(config, dict):
        findings.add([f"{where or 'top level'}: must be a mapping, got {_kind(config)}"])
        return
    if "applications" not in config and "import_path" in config:
        findings.add(
            [
                f"{join(where, ['applications'])}: required key is missing; Ray Serve no longer"
                " takes a single application at the top level: put it into this list"
            ]
        )
        check_serve({"applications": [config]}, where, target, findings)
        return
    unknown = unknown_keys(config, ServeDeploySchema, REFINEMENTS)
    findings.add([key.line(where) for key in unknown])
    config = without(config, unknown)
    applications = config.get("applications")
    # Serve names neither the place nor the first holder of a name that is taken: done below.
    for name in UNIQUE:
        findings.add(_duplicates(applications, name, join(where, ["applications"])))
    stray = _stray_deployments(applications, where)
    findings.add(stray)
    findings.add(
        [
            problem
            for problem in ([] if stray else value_problems(ServeDeploySchema, config, where))
            if "Found multiple configs" not in problem and "Found duplicate" not in problem
        ]
    )
    if applications == []:
        findings.notes.append("applications: none; deploying this removes all that run")
    for index, application in enumerate(applications if isinstance(applications, list) else []):
        if isinstance(application, dict):
            place = join(where, ["applications", index])
            _check_application(application, place, applications, target, findings)


def _stray_deployments(applications: Any, where: str) -> list[str]:
    """Ray's own schema stumbles on a deployment that is no mapping, and does not say where."""
    found = []
    for index, application in enumerate(applications if isinstance(applications, list) else []):
        listed = application.get("deployments") if isinstance(application, dict) else None
        for k, one in enumerate(listed if isinstance(listed, list) else []):
            if not isinstance(one, dict):
                place = join(where, ["applications", index, "deployments", k])
                found.append(f"{place}: must be a mapping, got {_kind(one)}")
    return found


def _check_application(
    application: dict[str, Any],
    where: str,
    all_of_them: list[Any],
    target: Target,
    findings: Findings,
) -> None:
    before = len(findings.problems)
    deployments = application.get("deployments")
    for index, deployment in enumerate(deployments if isinstance(deployments, list) else []):
        if isinstance(deployment, dict):
            place = join(where, ["deployments", index])
            findings.add(deployment_problems(deployment, place))
            if application.get("import_path") == BUILDER:
                findings.add(_live_problems(deployment.get("user_config"), place))
    route = application.get("route_prefix")
    if isinstance(route, str):
        findings.add(_route_problems(route, f"{where}.route_prefix"))
    entries: list[dict[str, Any]] = []
    about = f"{application.get('import_path')}, checked by Ray Serve's schema only"
    if application.get("import_path") == BUILDER:
        entries = _check_args(application.get("args"), f"{where}.args", target, findings)
        _check_scaling(application, entries, where, findings)
    if application.get("import_path") == CONSOLE:
        about = check_console(application, where, all_of_them, target, findings)
    if len(findings.problems) == before:
        about = "; ".join(describe(entry) for entry in entries) or about
        name, route = (_given(application, key) for key in UNIQUE)
        findings.summary.append(f"{name} at {route}: {about}")


def _check_scaling(
    application: dict[str, Any], entries: list[dict[str, Any]], where: str, findings: Findings
) -> None:
    overrides, place = application.get("deployments"), f"{where}.deployments"
    overrides = overrides if isinstance(overrides, list) else []
    findings.add(override_problems(overrides, entries, place))
    for index, entry in enumerate(entries):
        at = join(f"{where}.args.llm_configs", [index])
        findings.notes.extend(scaling_notes(entry, overrides, at, place))
    if application.get("autoscaling_policy") is not None and entries:
        findings.notes.append(
            f"{where}.autoscaling_policy: decides in the place of each model's; scaling has no"
            " effect"
        )


def _live_problems(user_config: Any, where: str) -> list[str]:
    """What running engines would refuse of a changed ``user_config``."""
    try:
        parse_live(user_config, Live(BatchingConfig(), None, AdmissionConfig()), 1.0)
    except ConfigError as error:
        return [f"{where}.{line}" for line in error.problems]
    return []


def _check_args(args: Any, where: str, target: Target, findings: Findings) -> list[dict[str, Any]]:
    """The entries of ``llm_configs``, once everything in ``args`` is checked."""
    if not isinstance(args, dict):
        findings.add([f"{where}.llm_configs: required key is missing"])
        return []
    unknown = unknown_keys(args, ARGS, REFINEMENTS)
    findings.add([key.line(where) for key in unknown])
    args = without(args, unknown)
    security = Security()
    with findings.collecting():
        security = parse_security(args.get(SECURITY), f"{where}.{SECURITY}")
    listed = args.get("llm_configs")
    place = f"{where}.llm_configs"
    if not isinstance(listed, list) or not listed:
        findings.add([f"{place}: must be a list with at least one model, got {_kind(listed)}"])
        return []
    entries = []
    for index, entry in enumerate(listed):
        inner = join(place, [index])
        if isinstance(entry, str):
            entry = _read_entry(entry, inner, target, findings)
        elif not isinstance(entry, dict):
            findings.add([f"{inner}: must be a mapping or the path of one, got {_kind(entry)}"])
        if isinstance(entry, dict):
            check_entry(entry, inner, target, findings, security)
            deployment = entry.get("deployment_config")
            if isinstance(deployment, dict):
                own = f"{inner}.deployment_config"
                findings.add(_live_problems(deployment.get("user_config"), own))
            entries.append(entry)
    findings.add(_repeated_models(entries, place))
    check_security(security, _classes(entries), f"{where}.{SECURITY}", target, findings)
    _check_way_in(args, entries, where, target, findings)
    return entries


def _classes(entries: list[dict[str, Any]]) -> list[list[str]]:
    blocks = [entry.get("classes") for entry in entries]
    return [list(block) for block in blocks if isinstance(block, dict)]


def _read_entry(path: str, where: str, target: Target, findings: Findings) -> Any:
    """The entry in a file of its own, less its unknown keys; None where there is none."""
    if not target.local_paths:
        findings.notes.append(f"{where}: {path!r} is on another machine and was not checked")
        return None
    try:
        entry = read_documents(Path(path))[0]
    except ConfigError as error:
        findings.add([f"{where}: {path}: {problem}" for problem in error.problems])
        return None
    if not isinstance(entry, dict):
        findings.add([f"{where}: {path}: must hold a mapping, got {_kind(entry)}"])
        return None
    unknown = unknown_keys(entry, ENTRY, REFINEMENTS)
    findings.add([key.line(where) for key in unknown])
    return without(entry, unknown)


def _check_way_in(
    args: dict[str, Any],
    entries: list[dict[str, Any]],
    where: str,
    target: Target,
    findings: Findings,
) -> None:
    """Direct streaming takes one model and no ingress; with LoRA the router reads the body."""
    found = []
    if len(args["llm_configs"]) > 1:
        found.append(
            f"{where}.llm_configs: direct streaming takes one model per application, got"
            f" {len(args['llm_configs'])}; make each its own application"
        )
    found += [
        f"{join(where, [key])}: direct streaming has no ingress deployment; leave the key out"
        for key in INGRESS
        if args.get(key)
    ]
    lora = any(entry.get("lora_config") for entry in entries)
    if lora and target.env.get(FORWARD_BODY) != "1":
        found.append(f'{where}.llm_configs: LoRA with direct streaming needs {FORWARD_BODY}="1"')
    if target.direct_streaming:
        findings.add(found)
        if target.env.get(HA_PROXY) != "1":
            findings.add([f'{where}: {DIRECT_STREAMING}="1" needs {HA_PROXY}="1" beside it'])
    else:
        findings.notes.extend(f"{problem} ({DIRECT_STREAMING} is not set)" for problem in found)


def _route_problems(route: str, where: str) -> list[str]:
    """Serve's own rule for a route, which it applies to running applications only."""
    try:
        _route_prefix_format(None, route)
    except ValueError as error:
        return [line(where, route, str(error))]
    return []


def _duplicates(applications: Any, key: str, where: str) -> list[str]:
    found = []
    holders: dict[str, int] = {}
    for index, application in enumerate(applications if isinstance(applications, list) else []):
        value = _given(application, key) if isinstance(application, dict) else None
        if isinstance(value, str) and value in holders:
            place, first = join(where, [index, key]), join(where, [holders[value]])
            found.append(line(place, value, f"{first} has it already"))
        elif isinstance(value, str):
            holders[value] = index
    return found


def _repeated_models(entries: list[dict[str, Any]], where: str) -> list[str]:
    found, seen = [], set()
    for index, entry in enumerate(entries):
        loading = entry.get("model_loading_config")
        model = loading.get("model_id") if isinstance(loading, dict) else None
        if isinstance(model, str) and model in seen:
            place = join(where, [index, "model_loading_config", "model_id"])
            found.append(line(place, model, "another model of this application has it already"))
        elif isinstance(model, str):
            seen.add(model)
    return found


def _given(application: dict[str, Any], key: str) -> Any:
    return application.get(key, ServeApplicationSchema.model_fields[key].default)


def _kind(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, default=str)[:40]
