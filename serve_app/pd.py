"""Prefill and decode apart: the blocks ``prefill_config`` and ``decode_config`` of ``build_app``.

Each is an entry as in ``llm_configs``, with our blocks. This module has the rules for a pair, and
the settings that prefill engines take from the decode engines' blocks. Needs neither Ray nor vLLM.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.config import parse_batching
from controller.errors import ConfigError
from controller.validation import shown
from replicas.door.settings import Security
from replicas.engine.settings import PdRole, prefill_problems
from serve_app.config import classes_of, model_id, ray_llm_config
from serve_app.live_roles import with_roles

PREFILL, DECODE, MODELS = "prefill_config", "decode_config", "llm_configs"
ROLES: dict[str, PdRole] = {PREFILL: "prefill", DECODE: "decode"}
SERVERS: dict[PdRole, str] = {
    "prefill": "replicas.server.pd_server:PrefillServer",
    "decode": "replicas.server.pd_server:DecodeServer",
}
NAME_PREFIX: dict[PdRole, str] = {"prefill": "Prefill:", "decode": "Decode:"}  # as Ray names them
KV = "kv_transfer_config"
KV_ROLES: dict[PdRole, tuple[str, str]] = {
    "prefill": ("kv_producer", "kv_both"),
    "decode": ("kv_consumer", "kv_both"),
}
LEAST = ("deployment_config", "autoscaling_config", "min_replicas")
# Settings that determine a prompt's tokens and KV: wrong KV would be read without an error.
SAME = (
    "tokenizer",
    "tokenizer_mode",
    "revision",
    "tokenizer_revision",
    "hf_overrides",
    "chat_template",
    "chat_template_content_format",
    "default_chat_template_kwargs",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "speculative_config",
)
# Keys of a decode engine's batching that the prefill engine uses too if it has no block.
SHARED = ("policy", "enforce", "lease_s")
SHARED_SLA = ("ttft_ms", "percentile")


def entries_of(args: Any) -> list[tuple[str, Any]]:
    """The entries of an application's ``args``, of either kind, each with its place in them."""
    if not isinstance(args, Mapping):
        return []
    listed = args.get(MODELS)
    models = listed if isinstance(listed, list | tuple) else []
    plain = [(f"{MODELS}[{index}]", entry) for index, entry in enumerate(models)]
    return plain + [(key, args[key]) for key in ROLES if key in args]


def is_pd(args: Mapping[str, Any]) -> bool:
    """Whether these arguments of ``build_app`` are of prefill and decode apart."""
    return any(key in args for key in ROLES)


def pair_problems(args: Mapping[str, Any], where: str) -> list[str]:
    """Problems with missing and extra keys, before the values are checked."""
    if MODELS in args:
        given = " and ".join(key for key in ROLES if key in args)
        return [
            f"{where}: {MODELS} is not allowed with {given}: an application serves whole"
            " engines, or one model with prefill and decode apart; make two applications"
        ]
    return [
        f"{where}.{key}: required key is missing with {other}"
        for key, other in ((PREFILL, DECODE), (DECODE, PREFILL))
        if args.get(key) is None
    ]


def whole_pair_problems(args: Mapping[str, Any], where: str) -> list[str]:
    """Problems that ``role_entries`` finds in the pair in ``args``, if both are there."""
    if not all(isinstance(args[key], Mapping) for key in ROLES):
        return []
    try:
        role_entries(args[PREFILL], args[DECODE], {key: f"{where}.{key}" for key in ROLES})
    except ConfigError as error:
        return error.problems
    return []


def role_entries(
    prefill: Mapping[str, Any], decode: Mapping[str, Any], where: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """The two entries, by their keys, each completed from the other.

    Args:
        where: the place of each, by key.

    Raises:
        ConfigError: naming each key, its value and what is allowed.
    """
    entries = {PREFILL: dict(prefill), DECODE: dict(decode)}
    found = []
    names = {key: model_id(entry) for key, entry in entries.items()}
    if names[PREFILL] != names[DECODE]:
        found.append(
            f"{where[PREFILL]}.model_loading_config.model_id: {shown(names[PREFILL])} is not"
            f" allowed: {DECODE} has {shown(names[DECODE])}, and both are of one model"
        )
    found += _unlike(entries, where)
    for key, entry in entries.items():
        found += _entry_problems(entry, ROLES[key], where[key])
    found += _prefill_problems(entries[PREFILL], where[PREFILL])
    if found:
        raise ConfigError(found)
    entries[PREFILL] = _completed(entries[PREFILL], entries[DECODE], where[DECODE])
    engine = dict(entries[DECODE]["engine_kwargs"])
    # If KV cannot be loaded, it is computed here: no request fails for another engine's fault.
    engine[KV] = {"kv_load_failure_policy": "recompute", **engine[KV]}
    entries[DECODE]["engine_kwargs"] = engine
    return entries


def pd_llm_config(
    entry: dict[str, Any], key: str, where: str, security: Security | None = None
) -> dict[str, Any]:
    """One of ``role_entries`` as Ray Serve LLM takes it.

    Its role is in the name of its group, so that the statistics of prefill and decode engines are
    never mixed, even if the two entries are equal.

    Raises:
        ConfigError: see ``ray_llm_config``.
    """
    role = ROLES[key]
    ours = ray_llm_config(entry, where, security)
    settings = ours["engine_kwargs"]["additional_config"]["brimful"]
    settings["role"] = role
    settings["group"] = f"{settings['group']}-{role}"
    return {**ours, "server_cls": SERVERS[role]}


def _unlike(entries: Mapping[str, Mapping[str, Any]], where: Mapping[str, str]) -> list[str]:
    """Keys that must be equal in both engines, and are not."""
    connector = ("engine_kwargs", KV, "kv_connector")
    paths = [("model_loading_config", "model_source"), connector]
    paths += [("engine_kwargs", key) for key in SAME]
    found = []
    for path in paths:
        ours, theirs = _at(entries[PREFILL], path), _at(entries[DECODE], path)
        if ours != theirs and (path != connector or (ours and theirs)):  # missing: said below
            found.append(
                f"{where[PREFILL]}.{'.'.join(path)}: {shown(ours)} is not allowed: {DECODE} has"
                f" {shown(theirs)}, and one engine reads what the other computed"
            )
    return found


def _at(value: Any, path: Iterable[str]) -> Any:
    """The value at these keys; None if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
    return value


def _entry_problems(entry: Mapping[str, Any], role: PdRole, where: str) -> list[str]:
    engine = entry.get("engine_kwargs") or {}
    if not isinstance(engine, Mapping):
        return []  # reported when it is read
    found = []
    kv = engine.get(KV)
    if not isinstance(kv, Mapping) or not kv.get("kv_connector"):
        found.append(
            f"{where}.engine_kwargs.{KV}: {shown(kv)} is not allowed: a mapping with a"
            " kv_connector, by which KV gets from one engine to the other; as {kv_connector:"
            f" NixlConnector, kv_role: {KV_ROLES[role][0]}}}"
        )
    elif kv.get("kv_role") not in KV_ROLES[role]:
        found.append(
            f"{where}.engine_kwargs.{KV}.kv_role: {shown(kv.get('kv_role'))} is not allowed:"
            f" {' or '.join(KV_ROLES[role])}"
        )
    parallel = engine.get("data_parallel_size")
    if isinstance(parallel, int) and parallel > 1:
        found.append(
            f"{where}.engine_kwargs.data_parallel_size: {parallel} is not allowed with prefill and"
            " decode apart: 1; num_replicas makes more engines"
        )
    if with_roles(entry):
        found.append(
            f"{where}.batching.roles: is not allowed with prefill and decode apart: these engines"
            " have their roles for good; leave it out"
        )
    if entry.get("emulate") is not None:
        found.append(
            f"{where}.emulate: is not allowed with prefill and decode apart: an emulated"
            " accelerator has no KV to hand over"
        )
    return found


def _prefill_problems(prefill: Mapping[str, Any], where: str) -> list[str]:
    found = prefill_problems(prefill.get("batching"), f"{where}.batching")
    if prefill.get("classes") is not None:
        found.append(
            f"{where}.classes: is not allowed: the classes of {DECODE} hold for both; leave it out"
        )
    if _at(prefill, LEAST) == 0:
        found.append(
            f"{where}.{'.'.join(LEAST)}: 0 is not allowed: without a prefill engine decode"
            " engines ask for none, so none would ever be started; allowed: at least 1"
        )
    return found


def _completed(
    prefill: dict[str, Any], decode: Mapping[str, Any], decode_where: str
) -> dict[str, Any]:
    """The prefill entry with the settings from the decode entry, but without an ITL target."""
    if prefill.get("batching") is None:
        theirs = parse_batching(decode.get("batching"), f"{decode_where}.batching").model_dump()
        sla = _picked(theirs["sla"], SHARED_SLA)
        prefill["batching"] = {**_picked(theirs, SHARED), "sla": sla}
    classes = classes_of(dict(decode), decode_where)
    if classes:
        prefill["classes"] = {
            name: {k: v for k, v in one.model_dump().items() if k != "itl_ms"}
            for name, one in classes.by_name.items()
        }
    return prefill


def _picked(block: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: block[key] for key in keys}
