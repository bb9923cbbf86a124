"""Check the arguments of ``serve_app:build_app``: its entries, and what they share."""

from typing import Any

from controller.validation import join, parse
from replicas.door.settings import Security, parse_security
from serve_app.auto_model import AUTO, NO_INGRESS, AutoModel, problems
from serve_app.checks.built import Built, Model, other_deployments
from serve_app.checks.deployment import env_problems
from serve_app.checks.findings import FORWARD_BODY, Findings, Target
from serve_app.checks.keys import unknown_keys, without
from serve_app.checks.live import live_problems
from serve_app.checks.llm import check_entry
from serve_app.checks.objects import dig
from serve_app.checks.security import check_security
from serve_app.checks.shapes import ARGS, ENTRY, PD_ARGS, REFINEMENTS
from serve_app.checks.values import call_problems, kind_of, line
from serve_app.config import SECURITY
from serve_app.elsewhere import of_ranks
from serve_app.entries import given_entry
from serve_app.environment import DIRECT_STREAMING, HA_PROXY
from serve_app.pd import (
    DECODE,
    MODELS,
    PREFILL,
    ROLES,
    entries_of,
    is_pd,
    pair_problems,
    role_entries,
)

INGRESS = ("ingress_cls_config", "ingress_deployment_config")


def check_args(args: Any, where: str, target: Target, findings: Findings) -> Built:
    """What ``args`` come to, once everything in them is checked."""
    if not isinstance(args, dict):
        findings.add([f"{where}.llm_configs: required key is missing"])
        return Built()
    if found := of_ranks(args, where):
        findings.add(found)
        return Built()
    apart = is_pd(args)
    if apart and (wrong_keys := pair_problems(args, where)):
        findings.add(wrong_keys)
        return Built()
    unknown = unknown_keys(args, PD_ARGS if apart else ARGS, REFINEMENTS)
    findings.add([key.line(where) for key in unknown])
    args = without(args, unknown)
    security = Security()
    with findings.collecting():
        security = parse_security(args.get(SECURITY), f"{where}.{SECURITY}")
    listed, place = args.get(MODELS), f"{where}.{MODELS}"
    if not apart and (not isinstance(listed, list) or not listed):
        findings.add([f"{place}: must be a list with at least one model, got {kind_of(listed)}"])
        return Built()
    given = _given(args, where, target, findings)
    if apart:
        given = _completed(given, findings)
    models: list[Model] = []
    for key, inner, entry in given:
        model = check_entry(entry, inner, target, findings, security, key)
        models += [model] if model else []
        deployment = entry.get("deployment_config")
        if model and isinstance(deployment, dict):
            user_config, at = deployment.get("user_config"), f"{inner}.deployment_config"
            findings.add(live_problems(user_config, entry, security, at))
    entries = [entry for _, _, entry in given]
    findings.add([] if apart else _repeated_models(entries, place))
    _check_auto_model(args, entries, f"{where}.{AUTO}", target, findings)
    check_security(security, _classes(entries), f"{where}.{SECURITY}", target, findings)
    _check_way_in(args, entries, where, target, findings)
    own = (MODELS, *ROLES, SECURITY, AUTO)
    shared = {key: value for key, value in args.items() if key not in own}
    findings.add(env_problems(shared, where, local_paths=target.local_paths))
    others: list[str] = []
    unbuilt = call_problems(
        lambda: others.extend(other_deployments(args, models, direct=target.direct_streaming)),
        args.get("ingress_cls_config"),
        f"{where}.ingress_cls_config",
    )
    findings.add(unbuilt)
    whole = len(models) == len(entries_of(args)) and not unbuilt
    by_name = {model.deployment.name: model for model in models}
    places = tuple(key for key, _, _ in given)
    return Built(entries, by_name, tuple(others), security, whole, places)


Given = list[tuple[str, str, dict[str, Any]]]


def _given(args: dict[str, Any], where: str, target: Target, findings: Findings) -> Given:
    """The entries that are mappings, or files with one: key, place, and entry."""
    found: Given = []
    for key, entry in entries_of(args):
        inner, in_file = f"{where}.{key}", isinstance(entry, str)
        if in_file and not target.local_paths:
            findings.notes.append(f"{inner}: {entry!r} is on another machine and was not checked")
            continue
        with findings.collecting():
            entry, inner = given_entry(entry, inner)
            if in_file:
                unknown = unknown_keys(entry, ENTRY, REFINEMENTS)
                findings.add([one.line(inner) for one in unknown])
                entry = without(entry, unknown)
            found.append((key, inner, entry))
    return found


def _completed(given: Given, findings: Findings) -> Given:
    """A pair with what follows from one for the other; as it is, where it is not sound."""
    by_key = {key: entry for key, _, entry in given}
    if len(by_key) == len(ROLES):
        with findings.collecting():
            places = {key: inner for key, inner, _ in given}
            by_key = role_entries(by_key[PREFILL], by_key[DECODE], places)
    return [(key, inner, by_key[key]) for key, inner, _ in given]


def _classes(entries: list[dict[str, Any]]) -> list[list[str]]:
    blocks = [entry.get("classes") for entry in entries]
    return [list(block) for block in blocks if isinstance(block, dict)]


def _check_way_in(
    args: dict[str, Any],
    entries: list[dict[str, Any]],
    where: str,
    target: Target,
    findings: Findings,
) -> None:
    """Direct streaming takes one model and no ingress; with LoRA the router reads the body."""
    found = []
    if (models := len(args.get(MODELS, ()))) > 1:
        found.append(
            f"{where}.{MODELS}: direct streaming takes one model per application, got {models};"
            " make each its own application"
        )
    found += [
        f"{join(where, [key])}: direct streaming has no ingress deployment; leave the key out"
        for key in INGRESS
        if args.get(key)
    ]
    lora = any(entry.get("lora_config") for entry in entries)
    if lora and target.env.get(FORWARD_BODY) != "1":
        found.append(f'{where}.{MODELS}: LoRA with direct streaming needs {FORWARD_BODY}="1"')
    if target.direct_streaming:
        findings.add(found)
        if target.env.get(HA_PROXY) != "1":
            findings.add([f'{where}: {DIRECT_STREAMING}="1" needs {HA_PROXY}="1" beside it'])
    else:
        findings.notes.extend(f"{problem} ({DIRECT_STREAMING} is not set)" for problem in found)


def _check_auto_model(
    args: dict[str, Any],
    entries: list[dict[str, Any]],
    where: str,
    target: Target,
    findings: Findings,
) -> None:
    """Rules that name no model, never match or always do."""
    if (block := args.get(AUTO)) is None:
        return
    with findings.collecting():
        auto = parse(AutoModel, block, where)
        models = [dig(entry, "model_loading_config", "model_id") for entry in entries]
        findings.add(problems(auto, [one for one in models if isinstance(one, str)], where))
    if target.direct_streaming:
        findings.add([f"{where}: {NO_INGRESS}"])


def _repeated_models(entries: list[dict[str, Any]], where: str) -> list[str]:
    found, seen = [], set()
    for index, entry in enumerate(entries):
        model = dig(entry, "model_loading_config", "model_id")
        if isinstance(model, str) and model in seen:
            place = join(where, [index, "model_loading_config", "model_id"])
            found.append(line(place, model, "another model of this application has it already"))
        elif isinstance(model, str):
            seen.add(model)
    return found
