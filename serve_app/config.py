"""The blocks that Brimful adds to an entry of ``llm_configs``, and the settings they become."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from controller.classes import ServiceClasses, parse_admission, parse_classes
from controller.config import BatchingConfig, Block, parse_batching
from controller.errors import ConfigError
from controller.validation import parse, shown
from replicas.door.settings import Security
from replicas.engine.engine_options import option_problems
from replicas.engine.executor import Executor, backend_problems, executor_of
from replicas.engine.settings import EmulateSettings, FailoverConfig, slowed, wait_problems
from replicas.profiles.profile_file import load_profile
from serve_app.live_roles import KV
from serve_app.live_roles import SERVER as MIXED_SERVER
from serve_app.live_roles import problems as live_role_problems
from serve_app.routing.gather import ends_of
from serve_app.routing.settings import (
    by_haproxy,
    parse_router,
    promised,
    request_router_config,
)

# The way out for a model with its own server class (a reward model of Ray's examples).
ELSEWHERE = (
    ", or serve this model by import_path: ray.serve.llm:build_openai_app, without our blocks"
)
AUTOSCALING_POLICY = "serve_app.autoscaling:CapacityPolicy"
# Our policy has delays of its own, different for more and for fewer replicas (decision 22).
AUTOSCALING_DEFAULTS = {
    "upscale_delay_s": 0.0,
    "downscale_delay_s": 60.0,
    "metrics_interval_s": 2.0,
    "look_back_period_s": 10.0,
}
SCHEDULER = "replicas.scheduler.DynamicBatchScheduler"
SERVER = "replicas.server.server:BrimfulServer"
MODEL_FILES = "replicas.server.model_files:FetchedByReplica"
EMULATED_BLOCK_TOKENS = 32  # vLLM on CPU wants a multiple of 32
# A removed replica lets its streams end, for as long as HAProxy keeps them over a change of
# replicas (``haproxy.ENVIRONMENT``). An idle replica ends at once.
DRAIN_TIMEOUT_S = 1800.0
EMULATED_SERVER = "replicas.emulator.emulated_server:EmulatedServer"
SECURITY = "security"  # next to llm_configs: it is the whole application's
BLOCKS = ("batching", "scaling", "router", "classes", "admission", "emulate", "engine", "failover")
# One event loop per replica: with two, each token would be passed from one to the other.
ONE_LOOP = {"RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0"}
A_DAY_S = 86_400.0


def of_ranks(args: Mapping[str, Any], where: str) -> list[str]:
    """Problems of arguments for Ray's builder of data parallel ranks; empty for others."""
    if "llm_config" not in args or "llm_configs" in args:
        return []
    return [
        f"{where}.llm_config: belongs to ray.serve.llm:build_dp_openai_app, whose data parallel"
        " ranks are not served here; keep that import_path, without our blocks, or list the model"
        " in llm_configs, a replica for each rank"
    ]


def with_policy(
    block: dict[str, Any], policy_kwargs: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The block as it is if it names a policy, else ours with our delays.

    Raises:
        ConfigError: its policy names no function, so Ray Serve would use its default.
    """
    policy = block.get("policy")
    if policy is None:
        ours = {"policy_function": AUTOSCALING_POLICY, "policy_kwargs": dict(policy_kwargs)}
        return {**AUTOSCALING_DEFAULTS, **block, "policy": ours}
    if not names_function(policy):
        raise ConfigError(
            [
                f"{where}.policy: {policy!r} names no policy_function, and Ray Serve would go by"
                " its own policy; leave policy out and set the scaling block, or add"
                " policy_function: 'module:name'"
            ]
        )
    return block


def names_function(policy: Any) -> bool:
    """Whether a ``policy`` names a function; else Ray Serve's default decides.

    Ray's own object fills in its default: an object names none.
    """
    if isinstance(policy, Mapping):
        return bool(policy.get("policy_function"))
    is_default = getattr(policy, "is_default_policy_function", None)
    return is_default is not None and not is_default()


def variable_problems(entry: dict[str, Any], where: str) -> list[str]:
    """Variables in an entry of ``llm_configs`` that are not text.

    Ray looks at them only after it has reserved a replica's place, which it then never frees.
    """
    own = f"{where}.deployment_config.ray_actor_options"
    deployment = entry.get("deployment_config")
    actor = deployment.get("ray_actor_options") if isinstance(deployment, dict) else None
    found = []
    for place, holder in ((where, entry), (own, actor)):
        block = holder.get("runtime_env") if isinstance(holder, dict) else None
        if isinstance(block, dict):
            found += text_problems(block.get("env_vars"), f"{place}.runtime_env.env_vars")
    return found


def text_problems(variables: Any, where: str) -> list[str]:
    """Values of ``env_vars`` that are not text."""
    if variables is not None and not isinstance(variables, dict):
        return [f"{where}: {shown(variables)} is not allowed: it must be a mapping"]
    return [
        f"{where}.{name}: {shown(value)} is not allowed: must be a string (quote it)"
        for name, value in (variables or {}).items()
        if not isinstance(value, str)
    ]


def model_id(entry: dict[str, Any]) -> str:
    """The name that clients ask for."""
    loading = entry.get("model_loading_config") or {}
    return str(loading.get("model_id", "model") if isinstance(loading, dict) else loading.model_id)


def group_name(entry: dict[str, Any], batching: BatchingConfig, executor: Executor) -> str:
    """Replicas share statistics if model, accelerator, engine and batching are equal.

    The model's source counts too, because two versions may be served under one name.
    """
    same = (
        entry.get("model_loading_config") or {},
        entry.get("engine_kwargs"),
        entry.get("accelerator_type"),
        entry.get("emulate"),
        executor,
        batching.model_dump(),
    )
    plain = json.loads(json.dumps(same, default=str))  # keys of several types have no order
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    return f"{model_id(entry)}-{digest[:8]}"


class ScalingConfig(Block):
    """How many replicas the traffic needs; used if ``autoscaling_config`` is given."""

    removed: ClassVar[Mapping[str, str]] = {
        "late_frac": "0.7% of the requests may be late",
        "queue_factor": "a queue above twice the caps is deep",
        "queue_for_s": "a deep queue counts once it lasted 30 s",
        "peak_s": "nothing is given up before 300 s are known",
        "peak_starts": "nothing is given up before three starts of a replica are known",
    }

    target_utilization: float = Field(
        1.0,
        gt=0,
        le=1,
        description="rho: share of its capacity that each replica is planned to carry",
    )
    drain_s: float = Field(
        20.0,
        gt=0,
        le=A_DAY_S,
        description="T_drain: time in which the queue should be worked off, s; requests that"
        " wait outside the engines get at least the time of a start",
    )
    start_s: float = Field(
        60.0,
        ge=0,
        le=A_DAY_S,
        description="time that a replica takes to start, s, until one start has been measured",
    )
    at_risk: float = Field(
        0.0,
        ge=0,
        le=0.9,
        description="share of the replicas above min_replicas that may vanish at once (spot"
        " machines); so many more are started",
    )


def parse_scaling(data: Any, where: str = "scaling") -> ScalingConfig:
    """The ``scaling`` block from plain data (None: all defaults).

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    return parse(ScalingConfig, {} if data is None else data, where)


def ray_llm_config(
    entry: dict[str, Any], where: str = "llm_configs[0]", security: Security | None = None
) -> dict[str, Any]:
    """An entry of ``llm_configs`` as Ray Serve LLM takes it: our blocks turned into its settings.

    Args:
        security: the application's block; None: all defaults.

    Raises:
        ConfigError: a block is wrong, or the entry sets a key that Brimful sets.
    """
    rest = {key: value for key, value in entry.items() if key not in BLOCKS}
    batching = parse_batching(entry.get("batching"), f"{where}.batching")
    scaling = parse_scaling(entry.get("scaling"), f"{where}.scaling")
    classes = classes_of(entry, where)
    admission = entry.get("admission")
    admission = None if admission is None else parse_admission(admission, f"{where}.admission")
    engine_kwargs = _mapping(rest, "engine_kwargs", where)
    if classes:
        engine_kwargs |= _ordered_by(classes, engine_kwargs, where)
    security = security or Security()
    _check(rest, engine_kwargs, batching, where)
    if batching.roles is not None:
        given_router = entry.get("router")
        router = None if given_router is None else parse_router(given_router, f"{where}.router")
        given_deployment = _mapping(rest, "deployment_config", where)
        if found := live_role_problems(entry, given_deployment, batching, router, where):
            raise ConfigError(found)
        # If KV cannot be loaded, it is computed here: no request fails for another engine's fault.
        engine_kwargs[KV] = {"kv_load_failure_policy": "recompute", **engine_kwargs[KV]}
    _check_trust(rest, engine_kwargs, security, where)
    runtime_env = _mapping(rest, "runtime_env", where)
    given = _mapping(runtime_env, "env_vars", f"{where}.runtime_env")
    if found := variable_problems(rest, where) + wait_problems(classes, admission, where):
        raise ConfigError(found)
    executor = executor_of({**entry, "engine_kwargs": engine_kwargs}, where)
    if found := backend_problems(engine_kwargs, executor, where):
        raise ConfigError(found)
    failover = entry.get("failover")
    failover = parse(FailoverConfig, {} if failover is None else failover, f"{where}.failover")
    emulate = None
    if entry.get("emulate") is not None:
        emulate = parse(EmulateSettings, entry["emulate"], f"{where}.emulate")
        if entry.get("engine"):
            problem = f"{where}.engine: is not allowed with emulate, which brings an executor"
            raise ConfigError([f"{problem}; leave one of them out"])
        batching = slowed(batching, emulate.time_scale)
        classes = classes and classes.slowed(emulate.time_scale)
        block_tokens = engine_kwargs.get("block_size") or EMULATED_BLOCK_TOKENS
        engine_kwargs = {**emulated_engine(emulate, block_tokens), **engine_kwargs}
    additional = _mapping(engine_kwargs, "additional_config", f"{where}.engine_kwargs")
    additional["brimful"] = {
        "batching": batching.model_dump(),
        "leased": True,
        "group": group_name(entry, batching, executor),
        "classes": classes and classes.to_wire(),
        "admission": admission and admission.model_dump(),
        "security": security.model_dump(),
        "emulate": emulate and emulate.model_dump(),
        "failover": failover.model_dump(),
        "executor": None if emulate else executor,
    }
    deployment = _mapping(rest, "deployment_config", where)
    if deployment.get("autoscaling_config") or deployment.get("num_replicas") == "auto":
        autoscaling = _autoscaling(deployment, f"{where}.deployment_config")
        at = f"{where}.deployment_config.autoscaling_config"
        deployment["autoscaling_config"] = with_policy(autoscaling, scaling.model_dump(), at)
    _route(entry, deployment, classes, where)
    deployment.setdefault("graceful_shutdown_timeout_s", DRAIN_TIMEOUT_S)
    return {
        "callback_config": {"callback_class": MODEL_FILES},
        **rest,
        "runtime_env": {**runtime_env, "env_vars": {**ONE_LOOP, **given}},
        "server_cls": EMULATED_SERVER if emulate else MIXED_SERVER if batching.roles else SERVER,
        "engine_kwargs": {
            **engine_kwargs,
            "scheduler_cls": SCHEDULER,
            "additional_config": additional,
        },
        "deployment_config": deployment,
    }


def _route(
    entry: dict[str, Any],
    deployment: dict[str, Any],
    classes: ServiceClasses | None,
    where: str,
) -> None:
    """Name our router to Ray Serve, if the deployment does not name one."""
    router = parse_router(entry.get("router"), f"{where}.router")
    if router.gather_classes:
        problem = "true is not allowed "
        if router.policy != "headroom":
            problem += f"with policy {router.policy!r}: only headroom knows classes"
            raise ConfigError([f"{where}.router.gather_classes: {problem}"])
        if not (classes and ends_of(promised(classes))):
            problem += "without classes that differ in itl_ms: there is nothing to gather"
            raise ConfigError([f"{where}.router.gather_classes: {problem}"])
    if deployment.get("request_router_config") is None:
        if not by_haproxy(router if entry.get("router") is not None else None, deployment):
            deployment["request_router_config"] = request_router_config(router, classes)
    elif entry.get("router") is not None:
        problem = f"{where}.router: is not allowed with deployment_config.request_router_config"
        raise ConfigError([f"{problem}, which also names a router; leave one of them out"])


def classes_of(entry: dict[str, Any], where: str) -> ServiceClasses | None:
    """The entry's classes; None: it has no ``classes`` block.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    block = entry.get("classes")
    return None if block is None else parse_classes(block, f"{where}.classes")


def _ordered_by(
    classes: ServiceClasses, engine_kwargs: dict[str, Any], where: str
) -> dict[str, Any]:
    """The engine arguments by which vLLM serves classes in the order of their priorities."""
    if len({one.priority for one in classes.by_name.values()}) == 1:
        return {}
    given = engine_kwargs.get("scheduling_policy")
    if given not in (None, "priority"):
        raise ConfigError(
            [
                f"{where}.engine_kwargs.scheduling_policy: {given!r} is not allowed with classes of"
                " several priorities: only 'priority'; leave the key out"
            ]
        )
    return {"scheduling_policy": "priority"}


def _autoscaling(deployment: dict[str, Any], where: str) -> dict[str, Any]:
    """``autoscaling_config`` as given; of Ray's own object only what was set.

    Its unset fields are Ray's defaults, and among them is Ray's default policy.
    """
    given = deployment.get("autoscaling_config")
    if isinstance(given, BaseModel):
        block = given.model_dump(exclude_unset=True)
        if "policy" in block and not names_function(getattr(given, "policy", None)):
            block["policy"].pop("policy_function", None)
        return block
    return _mapping(deployment, "autoscaling_config", where)


def _mapping(holder: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = holder.get(key)
    try:
        return dict({} if value is None else value)
    except (TypeError, ValueError):
        problem = f"{where}.{key}: {shown(value)} is not allowed: it must be a mapping"
        raise ConfigError([problem]) from None


def emulated_engine(
    emulate: EmulateSettings, block_tokens: int = EMULATED_BLOCK_TOKENS
) -> dict[str, Any]:
    """The engine arguments that give an emulated accelerator its KV memory and no weights."""
    kv_tokens = load_profile(emulate.profile).with_kv_tokens(emulate.kv_tokens).kv_tokens
    return {
        "block_size": block_tokens,
        "num_gpu_blocks_override": kv_tokens // block_tokens + 1,  # and the null block
        "load_format": "dummy",
        "enforce_eager": True,
    }


def _check(
    entry: dict[str, Any], engine_kwargs: dict[str, Any], batching: BatchingConfig, where: str
) -> None:
    found = []
    if entry.get("llm_engine", "vLLM") != "vLLM":
        found.append(
            f"{where}.llm_engine: {shown(entry['llm_engine'])} is not allowed: only 'vLLM'"
        )
    for place, key, ours in (
        (entry, "server_cls", SERVER),
        (engine_kwargs, "scheduler_cls", SCHEDULER),
    ):
        if place.get(key) not in (None, ours):
            inner = "" if place is entry else ".engine_kwargs"
            found.append(
                f"{where}{inner}.{key}: {shown(place[key])} is not allowed: Brimful sets it to"
                f" {ours!r}; leave the key out{ELSEWHERE if place is entry else ''}"
            )
    if engine_kwargs.get("otlp_traces_endpoint") and engine_kwargs.get("disable_log_stats"):
        found.append(
            f"{where}.engine_kwargs.disable_log_stats: True is not allowed with"
            " otlp_traces_endpoint: vLLM makes its spans of these numbers, and its engine would end"
            " with the first request"
        )
    size = engine_kwargs.get("max_num_seqs")
    if isinstance(size, int):
        try:
            batching.upper_bound(size)
        except ConfigError as error:
            found += [f"{where}.{problem}" for problem in error.problems]
    found += option_problems(batching, engine_kwargs, f"{where}.engine_kwargs", has_controller=True)
    if found:
        raise ConfigError(found)


def _check_trust(
    entry: dict[str, Any], engine_kwargs: dict[str, Any], security: Security, where: str
) -> None:
    found = []
    model = model_id(entry)
    if engine_kwargs.get("trust_remote_code") and model not in security.trust_remote_code:
        found.append(
            f"{where}.engine_kwargs.trust_remote_code: runs code that comes with the model; if"
            f" you want that, name the model next to llm_configs: {SECURITY}:"
            f" {{trust_remote_code: [{model}]}}"
        )
    if engine_kwargs.get("api_key") is not None:  # the message does not repeat the key
        found.append(
            f"{where}.engine_kwargs.api_key: is not allowed: Ray shows the configuration to"
            f" everyone who asks; use {SECURITY}.keys next to llm_configs"
        )
    if found:
        raise ConfigError(found)
