"""Which changes of a Serve configuration reach running replicas, and which start new ones.

Ray Serve restarts every replica of an application when ``args`` change by a letter. So what can
change live is sent as ``deployments`` next to the running ``args``. Pure.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.classes import guarded
from controller.config import parse_batching
from controller.errors import ConfigError
from controller.validation import join, parse, shown
from replicas.door.settings import Security, parse_security
from serve_app.checks.findings import BUILDER, builder_of
from serve_app.config import SECURITY, ray_llm_config
from serve_app.live_roles import with_roles
from serve_app.pd import MODELS, NAME_PREFIX, ROLES, entries_of, is_pd

Data = dict[str, Any]
# Blocks that a ``user_config`` may hold in the place of an entry's own.
BLOCKS = ("batching", "classes", "admission")
INGRESS = "AdmissionIngress"
# What stands under these is not printed, nor who asks at an address.
SECRET = frozenset({"env_vars", "api_key", "hf_token"})
USER = re.compile(r"//[^/@\s]+@")
# Options that Ray Serve changes without another replica.
OPTIONS = (
    "num_replicas",
    "autoscaling_config",
    "max_ongoing_requests",
    "graceful_shutdown_timeout_s",
    "graceful_shutdown_wait_loop_s",
    "health_check_period_s",
    "health_check_timeout_s",
)
COUNT, SCALING = OPTIONS[:2]
LIVE_IN_OVERRIDE = (*OPTIONS, "name", "user_config", "max_queued_requests")
THEIRS = "ray.serve.llm:build_openai_app"


@dataclass
class Changes:
    """What changes an application from its running configuration to a file's.

    Args:
        application: what to send so that no replica restarts, as far as possible.
        overrides: deployment, its running entry, and the override that is sent for it.
        live: what changes while replicas run, a line each.
        restarts: what would start every replica anew, a line each.
        gone: models' running deployments that the file does not have.
    """

    application: Data
    overrides: list[tuple[str, Data, Data]] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)


def changes(running: Data, wanted: Data, deployments: Iterable[str] = ()) -> Changes:
    """The changes from a running application to a file's.

    Args:
        deployments: names of the running deployments.

    Raises:
        ConfigError: a block of either is wrong.
    """
    found = Changes(copy.deepcopy(running))
    deployments = list(deployments)
    found.gone = gone(running, wanted, deployments)
    found.restarts += [
        f"deployment {name}: is gone, and its replicas with it" for name in found.gone
    ]
    same = {"args", "deployments", "import_path"}
    running, wanted = _with_defaults(running), _with_defaults(wanted)
    for line in _different(_less(running, same), _less(wanted, same), ""):
        found.restarts.append(line)
    if builder_of(running) != builder_of(wanted):
        place = f"import_path: {running.get('import_path')} -> {wanted.get('import_path')}"
        found.restarts.append(place)
    apart = any(is_pd(one.get("args") or {}) for one in (running, wanted))
    # With prefill and decode apart, nothing compared here reaches running replicas either.
    if apart or {builder_of(running), builder_of(wanted)} != {BUILDER}:
        found.restarts += _different(running.get("args"), wanted.get("args"), "args")
        found.restarts += _different(
            running.get("deployments"), wanted.get("deployments"), "deployments"
        )
        return found
    _ours(running, wanted, INGRESS in deployments, found)
    return found


def _ours(running: Data, wanted: Data, behind_ingress: bool, found: Changes) -> None:
    old, new = running.get("args") or {}, wanted.get("args") or {}
    rest = {"llm_configs", SECURITY}
    found.restarts += _different(_less(old, rest), _less(new, rest), "args")
    was, now = _entries(old), _entries(new)
    gone_, new_ = ([n for n in one if n not in other] for one, other in ((was, now), (now, was)))
    found.restarts += [f"model {name}: is gone, and its replicas with it" for name in gone_]
    found.restarts += [f"model {name}: is new, as a deployment of its own" for name in new_]
    overrides = _overrides(running)
    asked = _overrides(wanted)
    sent: dict[str, Data] = {name: copy.deepcopy(one) for name, one in asked.items()}
    for name in was.keys() & now.keys():
        (index, before), (_, after) = was[name], now[name]
        place = f"llm_configs[{index}]"
        deployment = model_name(before)
        _entry(before, after, place, found)
        mine, runs = asked.get(deployment, {}), overrides.get(deployment, {})
        override = _live_override(before, after, (old, new), mine)
        built = built_options(before, parse_security(old.get(SECURITY)), place)
        theirs = built_options(after, parse_security(new.get(SECURITY)), place)
        # A fixed number is wanted: with scaling, Ray Serve would start there and go on scaling.
        fixed = {SCALING: None} if isinstance(mine.get(COUNT), int) else {}
        options = laid_over(theirs, {**mine, **fixed}, f"deployments {deployment}")
        holds = laid_over(built, runs, f"deployments {deployment}")
        override |= to_send(built, options) | _scaling_kept(runs, holds, options)
        found.overrides.append((deployment, before, override))
        _say(before, old, runs, override, deployment, found)
        taken = _taken_as_code(runs, override)
        for key in OPTIONS:
            lines = found.restarts if key == SCALING and taken else found.live
            lines += _different(holds[key], options[key], f"{deployment}.{key}")
        sent[deployment] = {"name": deployment, **override}
    for name, one in overrides.items():
        if name not in {model_name(entry) for _, entry in was.values()}:
            _say_other(name, one, asked.get(name, {}), found)
    if behind_ingress and new.get(SECURITY) != old.get(SECURITY):
        block = {"user_config": {SECURITY: _whole(new.get(SECURITY))}}
        sent[INGRESS] = {"name": INGRESS, **block, **asked.get(INGRESS, {})}
    listed = [one for one in sent.values() if len(one) > 1]
    found.application.pop("deployments", None)
    if listed:
        found.application["deployments"] = listed


def _entries(args: Data) -> dict[str, tuple[int, Data]]:
    """Entries by their models' names.

    Raises:
        ConfigError: an entry is in a file of its own, whose contents Serve does not know.
    """
    found: dict[str, tuple[int, Data]] = {}
    for index, entry in enumerate(args.get("llm_configs") or []):
        if not isinstance(entry, dict):
            place = f"llm_configs[{index}]"
            raise ConfigError(
                [f"{place}: {shown(entry)}: write the entry inline, so that it can be compared"]
            )
        loading = entry.get("model_loading_config") or {}
        found[str(loading.get("model_id"))] = (index, entry)
    return found


def _entry(before: Data, after: Data, place: str, found: Changes) -> None:
    """Collect the changes of an entry that need new replicas."""
    live = {*BLOCKS, "scaling", "deployment_config"}
    found.restarts += _different(_less(before, live), _less(after, live), place)
    options = {*OPTIONS, "user_config"}
    found.restarts += _different(
        _less(before.get("deployment_config") or {}, options),
        _less(after.get("deployment_config") or {}, options),
        f"{place}.deployment_config",
    )
    if with_roles(before) != with_roles(after):
        there = "is new" if with_roles(after) else "is removed"
        found.restarts.append(
            f"{place}.batching.roles: {there}; this cannot change while an engine runs"
        )
    keys = ["classes", "admission"]
    if before.get("admission") is None and _under_sla(before):
        keys.remove("admission")  # an SLA alone turns admission on, so the block may come and go
    for key in keys:
        if (before.get(key) is None) != (after.get(key) is None):
            there = "is removed" if after.get(key) is None else "is new"
            found.restarts.append(
                f"{place}.{key}: {there}; this cannot change while an engine runs"
            )


def _under_sla(entry: Data) -> bool:
    return guarded(classes=False, admission=False, sla=parse_batching(entry.get("batching")).sla)


def _whole(security: Data | None) -> Data:
    """A ``security`` block that says so if it asks for no keys: else the present keys stay."""
    return {"keys": None, **(security or {})}


def _live_override(before: Data, after: Data, args: tuple[Data, Data], asked: Data) -> Data:
    """The override by which replicas that started with ``before`` use ``after``.

    Args:
        args: the application's, as they run and as they are wanted.
        asked: the override in the file.
    """
    override = {key: copy.deepcopy(value) for key, value in asked.items() if key != "name"}
    theirs, its = ((e.get("deployment_config") or {}).get("user_config") for e in (before, after))
    mine: Data = asked.get("user_config") or its or {}
    live: Data = {}
    for key in BLOCKS:
        wanted = mine[key] if mine.get(key) is not None else after.get(key)
        if wanted != before.get(key):
            live[key] = {} if wanted is None else wanted
    wanted = mine.get(SECURITY, args[1].get(SECURITY))
    if wanted != args[0].get(SECURITY):
        live[SECURITY] = _whole(wanted)
    if live or theirs or "user_config" in asked:
        override["user_config"] = live or None
    return {key: value for key, value in override.items() if key not in OPTIONS}


def _say(before: Data, args: Data, runs: Data, override: Data, name: str, found: Changes) -> None:
    """Lines about what differs from what holds now."""
    own = {key: before.get(key) for key in BLOCKS} | {SECURITY: args.get(SECURITY)}
    entrys = (before.get("deployment_config") or {}).get("user_config") or {}
    holds = {**own, **(runs.get("user_config", entrys) or {})}
    then = {**own, **(override.get("user_config", entrys) or {})}
    found.live += _different(holds, then, name)
    heavy_now, heavy_then = (_less(one, set(LIVE_IN_OVERRIDE)) for one in (runs, override))
    found.restarts += _different(heavy_now, heavy_then, f"deployments {name}")


def _scaling_kept(runs: Data, holds: Data, wanted: Data) -> Data:
    """The scaling to send if one is sent already: without, Ray Serve would see other code."""
    block, then = runs.get(SCALING), wanted[SCALING]
    if not isinstance(block, dict) or then is None:
        return {}
    if holds[SCALING].get("policy") != then.get("policy"):
        return {SCALING: then}
    own = {"policy": block["policy"]} if "policy" in block else {}
    return {SCALING: _less(then, {"policy"}) | own}


def _taken_as_code(runs: Data, sent: Data) -> bool:
    """Whether the scaling of an override would make Ray Serve restart every replica.

    Ray Serve's version of an application's code includes the policies in ``deployments``.
    """
    before, after = (one.get(SCALING) for one in (runs, sent))
    if isinstance(before, dict) and isinstance(after, dict):
        return before.get("policy") != after.get("policy")
    return isinstance(before, dict) or isinstance(after, dict)


def _say_other(name: str, runs: Data, asked: Data, found: Changes) -> None:
    keys = set(LIVE_IN_OVERRIDE)
    live = {key: one for key, one in runs.items() if key in keys}
    then = {key: one for key, one in asked.items() if key in keys}
    found.live += _different(live, then | {"name": name}, name)
    found.restarts += _different(_less(runs, keys), _less(asked, keys), f"deployments {name}")


def _overrides(application: Data) -> dict[str, Data]:
    listed = application.get("deployments") or []
    return {str(one.get("name")): one for one in listed if isinstance(one, dict)}


def _with_defaults(application: Data) -> Data:
    """An application with Ray Serve's defaults for what it does not say."""
    from ray.serve.schema import ServeApplicationSchema

    fields = ServeApplicationSchema.model_fields.items()
    return {k: one.get_default() for k, one in fields if not one.is_required()} | application


def _less(block: Mapping[str, Any], keys: set[str]) -> Data:
    return {key: value for key, value in block.items() if key not in keys}


def _different(before: Any, after: Any, place: str) -> list[str]:
    return list(_lines(before, after, place))


def _lines(before: Any, after: Any, place: str) -> Iterator[str]:
    """What differs, value by value; nothing if a key is null in one and missing in the other."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            yield from _lines(before.get(key), after.get(key), join(place, [str(key)]))
    elif isinstance(before, dict) and after is None and place:
        yield from _lines(before, {}, place)
    elif before is None and isinstance(after, dict) and place:
        yield from _lines({}, after, place)
    elif before != after:
        secret = not SECRET.isdisjoint(place.replace("[", ".").split("."))
        yield f"{place}: " + ("changed" if secret else f"{_word(before)} -> {_word(after)}")


def _word(value: Any) -> str:
    return "unset" if value is None else USER.sub("//...@", shown(_hidden(value)))


def _hidden(value: Any) -> Any:
    """A value without what may be a secret in it."""
    if isinstance(value, dict):
        return {k: "..." if k in SECRET else _hidden(v) for k, v in value.items()}
    return [_hidden(one) for one in value] if isinstance(value, list) else value


def built_options(entry: Data, security: Security, where: str) -> Data:
    """The options of an entry's deployment: ``num_replicas`` is None if ``autoscaling_config``,
    without its defaults, is not.

    Raises:
        ConfigError: Ray Serve takes no such options.
    """
    from ray import serve
    from ray.llm._internal.common import dict_utils
    from ray.llm._internal.serve import constants

    given = ray_llm_config(entry, where, security)["deployment_config"]
    # As ray.llm's builder has them, which imports vLLM.
    defaults = {
        "max_ongoing_requests": constants.DEFAULT_MAX_ONGOING_REQUESTS,
        "health_check_period_s": constants.DEFAULT_HEALTH_CHECK_PERIOD_S,
        "health_check_timeout_s": constants.DEFAULT_HEALTH_CHECK_TIMEOUT_S,
        SCALING: {"target_ongoing_requests": constants.DEFAULT_MAX_TARGET_ONGOING_REQUESTS},
    }
    merged = dict_utils.maybe_apply_llm_deployment_config_defaults(defaults, given)
    merged[SCALING], policy = _without_policy(merged.get(SCALING))
    try:
        made = serve.deployment(object, **{k: merged[k] for k in OPTIONS if k in merged})
    except ValueError as error:
        line = " ".join(str(error).split())
        raise ConfigError([f"{where}.deployment_config: {line}"]) from None
    options = of_deployment(made._deployment_config)
    if options[SCALING] is not None:
        options[SCALING] |= policy
    return options


def of_deployment(config: Any) -> Data:
    """The options of Ray Serve's ``DeploymentConfig``."""
    scaling = config.autoscaling_config
    found = {key: getattr(config, key) for key in OPTIONS}
    if scaling is not None:
        found |= {COUNT: None, SCALING: _plain(scaling)}
    return found


def _without_policy(scaling: Any) -> tuple[Any, Data]:
    """A block, and its policy apart: Ray would import it, and only the cluster may have it."""
    if not isinstance(scaling, dict):
        return scaling, {}
    return (
        {key: value for key, value in scaling.items() if key != "policy"},
        {key: value for key, value in scaling.items() if key == "policy"},
    )


def _plain(scaling: Any) -> Data:
    bounds = {"min_replicas": scaling.min_replicas, "max_replicas": scaling.max_replicas}
    return bounds | scaling.model_dump(mode="json", exclude_defaults=True)


def laid_over(built: Data, override: Data, where: str) -> Data:
    """The options that hold with an override, as Ray Serve lays it over those of the code.

    Raises:
        ConfigError: its ``autoscaling_config`` is wrong.
    """
    from ray.serve.config import AutoscalingConfig

    # Serve takes null only for no scaling.
    given = {k: override[k] for k in OPTIONS if override.get(k) is not None}
    if SCALING in override:
        given[SCALING] = override[SCALING]
    found = {**built, **given}
    block = found[SCALING]
    if found[COUNT] == "auto":
        auto = AutoscalingConfig.default().model_dump(exclude_unset=True)
        block = auto | (given.get(SCALING) or built[SCALING] or {})
    if block is not None:
        rest, policy = _without_policy(block)
        block = _plain(parse(AutoscalingConfig, rest, f"{where}.{SCALING}")) | policy
    return {**found, SCALING: block, COUNT: None if block is not None else found[COUNT] or 1}


def to_send(built: Data, wanted: Data) -> Data:
    """The override by which a deployment that was built with ``built`` uses ``wanted``."""
    sent = {key: wanted[key] for key in OPTIONS if wanted[key] != built[key]}
    if wanted[SCALING] is not None:  # with it Serve takes no number; without it, it needs one
        sent.pop(COUNT, None)
    return sent


def model_name(entry: Data, builder: str = BUILDER, key: str = MODELS) -> str:
    """The name of an entry's deployment; ``key``: where the entry stands in ``args``."""
    own = (entry.get("deployment_config") or {}).get("name")
    model = str((entry.get("model_loading_config") or {}).get("model_id"))
    if builder == BUILDER:
        server = "MixedServer" if with_roles(entry) else "BrimfulServer"
        server = "EmulatedServer" if entry.get("emulate") is not None else server
    else:
        server = str(entry.get("server_cls") or "LLMServer").replace(":", ".").rpartition(".")[2]
    prefix = NAME_PREFIX[ROLES[key]] if key in ROLES else f"{server}:"
    return f"{prefix}{own or model.replace('/', '--').replace('.', '_')}"


def is_model(deployment: str) -> bool:
    """Whether a deployment is a model's, not an ingress or a router."""
    return ":" in deployment


def gone(running: Data, wanted: Data, deployments: Iterable[str]) -> list[str]:
    """The running models' deployments that ``wanted`` no longer has.

    None if the same unknown builder makes both.
    """
    builder = builder_of(wanted)
    entries = entries_of(wanted.get("args"))
    known = builder in (BUILDER, THEIRS) and all(isinstance(one, dict) for _, one in entries)
    if not known and builder == builder_of(running):
        return []
    kept = {model_name(entry, builder, key) for key, entry in entries} if known else set()
    return [name for name in deployments if is_model(name) and name not in kept]
