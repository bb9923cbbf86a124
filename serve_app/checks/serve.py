"""Check a Ray Serve configuration: Serve's own schema, then our applications, whose arguments are
entries and what these share, down to our blocks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ray.llm._internal.common.placement import PlacementGroupConfig
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema, _route_prefix_format

from controller.config import parse_batching
from controller.validation import join, parse, shown
from replicas.door.settings import Security, parse_security
from serve_app.auto_model import AUTO, NO_INGRESS, AutoModel, problems
from serve_app.batches.arguments import settings_of
from serve_app.checks.built import Built, Model, Placed, build_model, override_problems
from serve_app.checks.findings import (
    BATCHES,
    BUILDER,
    CONSOLE,
    Findings,
    Target,
    builder_of,
    dig,
    line,
    listed,
    mapping,
)
from serve_app.checks.quick import MAPPINGS, check_blocks, live_problems, shape_problems
from serve_app.checks.room import check_nodes
from serve_app.checks.routes import serve_clocks
from serve_app.checks.values import (
    ARGS,
    ENTRY,
    PD_ARGS,
    call_problems,
    deployment_problems,
    engine_problems,
    env_problems,
    unknown_keys,
    value_problems,
)
from serve_app.checks.vllm_config import vllm_problems
from serve_app.config import BLOCKS, SECURITY, classes_of, of_ranks
from serve_app.console.arguments import keys_of, says_who
from serve_app.entries import given_entry
from serve_app.haproxy import FORWARD_BODY
from serve_app.pd import (
    DECODE,
    MODELS,
    NAME_PREFIX,
    PREFILL,
    ROLES,
    entries_of,
    is_pd,
    pair_problems,
    role_entries,
)
from serve_app.routing.settings import parse_router

LOOPBACK = ("127.", "localhost", "::1")
Entries = dict[str, tuple[str, dict[str, Any]]]  # place and entry, by the key in the arguments


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


def check_args(args: Any, where: str, target: Target, findings: Findings) -> Built:
    """The result of ``args``, once everything in them is checked."""
    if not isinstance(args, dict):
        findings.add([f"{where}.{MODELS}: required key is missing"])
        return Built()
    apart = is_pd(args)
    if found := of_ranks(args, where) or (apart and pair_problems(args, where)):
        findings.add(found)
        return Built()
    findings.add(unknown_keys(args, PD_ARGS if apart else ARGS, where))
    listed = args.get(MODELS)
    if not apart and (not isinstance(listed, list) or not listed):
        findings.add(
            [f"{where}.{MODELS}: must be a list with at least one model, got {shown(listed)}"]
        )
        return Built()
    security = Security()
    with findings.collecting():
        security = parse_security(args.get(SECURITY), f"{where}.{SECURITY}")
    ingress = {"name": "m", **mapping(args, "ingress_deployment_config")}
    findings.add(
        deployment_problems(
            ingress, f"{where}.ingress_deployment_config", local_paths=target.local_paths
        )
    )
    given = _given(args, where, target, findings)
    models: list[Model] = []
    for key, (place, entry) in given.items():
        model = _check_entry(entry, key, place, target, findings, security)
        models += [model] if model else []
    entries = {key: entry for key, (_, entry) in given.items()}
    if (block := args.get(AUTO)) is not None:
        with findings.collecting():
            auto = parse(AutoModel, block, f"{where}.{AUTO}")
            names = (str(dig(one, "model_loading_config", "model_id")) for one in entries.values())
            findings.add(problems(auto, names, f"{where}.{AUTO}"))
        findings.add([f"{where}.{AUTO}: {NO_INGRESS}"] if target.direct_streaming else [])
    return Built(entries, {one.deployment.name: one for one in models}, security)


def _given(args: dict[str, Any], where: str, target: Target, findings: Findings) -> Entries:
    """The entries that are mappings, or files with one; of a pair, both halves."""
    found: Entries = {}
    for key, entry in entries_of(args):
        place = f"{where}.{key}"
        if isinstance(entry, str) and not target.local_paths:
            findings.notes.append(f"{place}: {entry!r} is on another machine and was not checked")
            continue
        with findings.collecting():
            read, at = given_entry(entry, place)
            if isinstance(entry, str):
                findings.add(unknown_keys(read, ENTRY, at))
            found[key] = at, read
    if found.keys() == ROLES.keys():
        with findings.collecting():
            places = {key: at for key, (at, _) in found.items()}
            whole = role_entries(found[PREFILL][1], found[DECODE][1], places)
            found = {key: (places[key], entry) for key, entry in whole.items()}
    return found


def _check_entry(
    entry: dict[str, Any],
    key: str,
    where: str,
    target: Target,
    findings: Findings,
    security: Security,
) -> Model | None:
    """Report what is wrong with ``entry``.

    Args:
        key: where it stands in the application's arguments.

    Returns:
        The result; None: it cannot be built.
    """
    entry = {key: value for key, value in entry.items() if value is not None}
    plain = {key: value for key, value in entry.items() if key not in BLOCKS}
    ours = check_blocks(entry, key, where, security, findings)
    if all(isinstance(entry.get(one, {}), dict) for one in MAPPINGS):
        findings.add(_value_problems(plain, where, local_paths=target.local_paths))
    if ours is None or any(problem.startswith(where) for problem in findings.problems):
        return None
    prefix = NAME_PREFIX[ROLES[key]] if key in ROLES else None
    made: list[Model] = []
    findings.add(call_problems(lambda: made.append(build_model(entry, ours, prefix)), ours, where))
    user_config = dig(entry, "deployment_config", "user_config")
    findings.add(live_problems(user_config, entry, security, f"{where}.deployment_config"))
    findings.add(vllm_problems(plain, where) if made and target.local_paths else [])
    findings.notes.extend(_notes(entry, where, target))
    return made[0] if made else None


def _value_problems(entry: dict[str, Any], where: str, *, local_paths: bool) -> list[str]:
    """What Ray's and vLLM's classes refuse in the values."""
    deployment = {"name": "m", **entry.get("deployment_config", {})}
    found = deployment_problems(deployment, f"{where}.deployment_config", local_paths=local_paths)
    found += env_problems(entry, where, local_paths=local_paths)
    if "placement_group_config" in entry:
        bundles = f"{where}.placement_group_config"
        found += value_problems(PlacementGroupConfig, entry["placement_group_config"], bundles)
    engine = entry.get("engine_kwargs", {})
    found += engine_problems(engine, f"{where}.engine_kwargs")
    if dig(engine, "additional_config", "brimful") is not None:
        place = f"{where}.engine_kwargs.additional_config.brimful"
        found.append(f"{place}: is made from the batching block; leave it out")
    # Ray's class for the whole repeats, less exactly, what was reported of a block.
    places = [join(where, [key]) for key in entry]
    reported = tuple(place for place in places if any(line.startswith(place) for line in found))
    whole = value_problems(LLMConfig, {**entry, "server_cls": None}, where)  # ours
    return found + [line for line in whole if not line.startswith(reported)]


def _notes(entry: dict[str, Any], where: str, target: Target) -> list[str]:
    """Accepted keys that do less, or more, than they seem to."""
    router = parse_router(entry.get("router"))
    hidden = {
        "router.prefix_affinity": router.prefix_affinity,
        "router.gather_classes": router.gather_classes,
        "lora_config": entry.get("lora_config"),
    }
    shows = not target.direct_streaming or target.env.get(FORWARD_BODY) == "1"
    notes = [
        f'{where}.{key}: has no effect without {FORWARD_BODY}="1" for Ray\'s processes: HAProxy'
        " does not show prompts, classes and adapters to the router"
        for key, given in hidden.items()
        if given and not shows
    ]
    if entry.get("scaling") and _scaling(entry) is None:
        notes.append(f"{where}.scaling: has no effect without deployment_config.autoscaling_config")
    engine = mapping(entry, "engine_kwargs")
    if engine.get("tool_call_parser") and not engine.get("enable_auto_tool_choice"):
        notes.append(
            f"{where}.engine_kwargs.tool_call_parser: has no effect without"
            " enable_auto_tool_choice: true; vLLM refuses requests that leave the choice of tools"
            " to the model"
        )
    return notes + [
        f"{where}.engine_kwargs.{key}: the log would hold requests or answers of clients"
        for key in ("enable_log_requests", "enable_log_outputs")
        if dig(entry, "engine_kwargs", key)
    ]


def _scaling(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Bounds on replicas as Ray Serve will see them; None: their number is fixed."""
    deployment = entry.get("deployment_config") or {}
    auto = deployment.get("num_replicas") == "auto"
    given = deployment.get("autoscaling_config")
    if not auto and not given:
        return None
    default = AutoscalingConfig.default() if auto else AutoscalingConfig()
    return {**default.model_dump(), **(given or {})}


def describe(entry: dict[str, Any]) -> str:
    """One line on what an entry without problems will do."""
    batching = parse_batching(entry.get("batching"))
    loading, engine = entry["model_loading_config"], entry.get("engine_kwargs") or {}
    sla, bounds = batching.sla, batching.max_running
    limits = [
        f"{value:g} ms {name}"
        for value, name in ((sla.itl_ms, "between tokens"), (sla.ttft_ms, "to the first token"))
        if value is not None
    ]
    promise = f"{' and '.join(limits)} at p{sla.percentile:g}" if limits else "no SLA"
    top = bounds.max or engine.get("max_num_seqs") or "vLLM's default"
    classes = classes_of(entry, "")
    return (
        f"model {loading['model_id']}, policy {batching.policy}, {promise},"
        f" {bounds.min} to {top} running, {_replicas(entry)}"
        + (f", classes {', '.join(classes.by_name)}" if classes else "")
    )


def _replicas(entry: dict[str, Any]) -> str:
    scaling = _scaling(entry)
    if scaling is not None:
        return f"{scaling['min_replicas']} to {scaling['max_replicas']} replicas"
    count = (entry.get("deployment_config") or {}).get("num_replicas") or 1
    return f"{count} replica{'s' if count != 1 else ''}"
