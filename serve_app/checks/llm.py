"""Check one entry of ``llm_configs`` as far as that goes without loading its model."""

from typing import Any

from ray.llm._internal.common.placement import PlacementGroupConfig
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.serve.config import AutoscalingConfig

from controller.config import parse_batching
from controller.errors import ConfigError
from controller.validation import join, shown
from replicas.door.settings import Security
from serve_app.checks.built import Model, build_model, card_problems
from serve_app.checks.deployment import deployment_problems, env_problems
from serve_app.checks.engine import engine_problems
from serve_app.checks.findings import FORWARD_BODY, Findings, Target
from serve_app.checks.model_files import missing_models
from serve_app.checks.quick import MAPPINGS, PARSERS
from serve_app.checks.routes import closed_routes
from serve_app.checks.values import call_problems, value_problems
from serve_app.checks.vllm_config import vllm_problems
from serve_app.config import BLOCKS, classes_of, ray_llm_config
from serve_app.pd import MODELS, NAME_PREFIX, ROLES, pd_llm_config
from serve_app.routing.settings import parse_router

INNER = (("engine_kwargs", "additional_config"), ("deployment_config", "autoscaling_config"))
LOGGING = ("enable_log_requests", "enable_log_outputs")
DEBUG_ANSWERS = "VLLM_DEBUG_LOG_API_SERVER_RESPONSE"


def check_entry(
    entry: dict[str, Any],
    where: str,
    target: Target,
    findings: Findings,
    security: Security,
    key: str = MODELS,
) -> Model | None:
    """Report what is wrong with ``entry``, which holds known keys only.

    Args:
        key: where it stands in the application's arguments.

    Returns:
        What it comes to; None where that cannot be built.
    """
    before = len(findings.problems)
    entry = {key: value for key, value in entry.items() if value is not None}
    shape = [
        f"{where}.{key}: must be a mapping, got {shown(entry[key])}"
        for key in MAPPINGS
        if not isinstance(entry.get(key, {}), dict)
    ]
    findings.add(shape)
    for block, parse in PARSERS.items():
        try:
            parse(entry, where)
        except ConfigError as error:
            findings.add(error.problems)
            entry.pop(block)  # what is left can still be checked
    if shape:
        return None
    serve_part = {k: v for k, v in entry.items() if k not in (*BLOCKS, "server_cls")}
    findings.add(serve_problems(serve_part, where, target))
    if target.local_paths:
        missing_models(entry, where, findings)
    if not all(isinstance(entry.get(a, {}).get(b) or {}, dict) for a, b in INNER):
        return None
    model = None
    with findings.collecting():
        if key in ROLES:
            ours, prefix = pd_llm_config(entry, key, where, security), NAME_PREFIX[ROLES[key]]
        else:
            ours, prefix = ray_llm_config(entry, where, security), None
        if len(findings.problems) == before:
            model = _built(entry, ours, where, findings, prefix)
    if model and target.local_paths:
        findings.add(vllm_problems(serve_part, where))
    findings.notes.extend(_unused(entry, where, target))
    findings.notes.extend(closed_routes(entry, security, where))
    return model


def serve_problems(entry: dict[str, Any], where: str, target: Target) -> list[str]:
    """What Ray Serve LLM and vLLM have against an entry without our blocks."""
    engine = entry.get("engine_kwargs", {})
    deployment = entry.get("deployment_config", {})
    place = f"{where}.deployment_config"
    local = target.local_paths
    found = deployment_problems({"name": "llm", **deployment}, place, local_paths=local)
    env = {"runtime_env": entry.get("runtime_env")}
    found += env_problems(env, where, local_paths=local)
    if "placement_group_config" in entry:
        bundles = f"{where}.placement_group_config"
        found += value_problems(PlacementGroupConfig, entry["placement_group_config"], bundles)
    found += engine_problems(engine, f"{where}.engine_kwargs", local_paths=local)
    additional = engine.get("additional_config")
    if isinstance(additional, dict) and "brimful" in additional:
        found.append(
            f"{where}.engine_kwargs.additional_config.brimful: is made from the batching block;"
            " leave it out"
        )
    # Ray's class for the whole says less exactly what was said of a block already.
    places = [join(where, [key]) for key in entry]
    reported = tuple(place for place in places if any(line.startswith(place) for line in found))
    whole = value_problems(LLMConfig, entry, where)
    return found + [line for line in whole if not line.startswith(reported)]


def _built(
    entry: dict[str, Any], ours: dict[str, Any], where: str, findings: Findings, prefix: str | None
) -> Model | None:
    """What the app builder and the replica would stumble on: classes to import, engine config."""
    made: list[Model] = []
    findings.add(call_problems(lambda: made.append(build_model(entry, ours, prefix)), ours, where))
    if not made:
        return None
    bundles = made[0].deployment._replica_config.placement_group_bundles
    findings.add(card_problems(made[0], bundles, where))
    return made[0]


def _unused(entry: dict[str, Any], where: str, target: Target) -> list[str]:
    notes = []
    router = parse_router(entry.get("router"))
    if target.direct_streaming and target.env.get(FORWARD_BODY) != "1":
        notes += [
            f'{where}.router.{key}: has no effect without {FORWARD_BODY}="1" for Ray\'s'
            f" processes: HAProxy does not show {what} to the router"
            for key, what in (("prefix_affinity", "prompts"), ("gather_classes", "classes"))
            if getattr(router, key)
        ]
    if entry.get("scaling") and _scaling(entry) is None:
        notes.append(f"{where}.scaling: has no effect without deployment_config.autoscaling_config")
    notes += _logged_prompts(entry, where)
    engine = entry.get("engine_kwargs") or {}
    if engine.get("tool_call_parser") and not engine.get("enable_auto_tool_choice"):
        notes.append(
            f"{where}.engine_kwargs.tool_call_parser: has no effect without"
            " enable_auto_tool_choice: true; vLLM refuses requests that leave the choice of tools"
            " to the model"
        )
    bounds = parse_batching(entry.get("batching")).max_running
    if (bounds.max or bounds.min > 1) and "max_num_seqs" not in engine:
        notes.append(
            f"{where}.engine_kwargs: without max_num_seqs vLLM chooses it by the card (256 or"
            " 1024), and a bound of max_running above it stops the replica from starting"
        )
    return notes


def _logged_prompts(entry: dict[str, Any], where: str) -> list[str]:
    engine = entry.get("engine_kwargs") or {}
    variables = entry.get("runtime_env", {}).get("env_vars")
    keys = [f"engine_kwargs.{key}" for key in LOGGING if engine.get(key)]
    if isinstance(variables, dict) and DEBUG_ANSWERS in variables:
        keys.append(f"runtime_env.env_vars.{DEBUG_ANSWERS}")
    return [
        f"{where}.{key}: what clients ask or are answered is written to the log" for key in keys
    ]


def _scaling(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Bounds on replicas as Ray Serve will see them; None where their number is fixed."""
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
    return (
        f"model {loading['model_id']}, policy {batching.policy}, {promise},"
        f" {bounds.min} to {top} running, {_replicas(entry)}{_classes(entry)}"
    )


def _classes(entry: dict[str, Any]) -> str:
    classes = classes_of(entry, "")
    return f", classes {', '.join(classes.by_name)}" if classes else ""


def _replicas(entry: dict[str, Any]) -> str:
    scaling = _scaling(entry)
    if scaling is not None:
        return f"{scaling['min_replicas']} to {scaling['max_replicas']} replicas"
    count = (entry.get("deployment_config") or {}).get("num_replicas") or 1
    return f"{count} replica{'s' if count != 1 else ''}"
