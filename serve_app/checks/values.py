"""Ask the classes of Ray and vLLM what they have against plain data; one line per finding.

Ray Serve drops a key that it does not know without a word. If a class declares a plain mapping and
validates it later (or never) by another class, that class is named here. Importing this module
imports Ray Serve LLM and vLLM: seconds.
"""

import dataclasses
import inspect
import json
import re
import types
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from types import GenericAlias
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from ray.llm._internal.common.placement import PlacementGroupConfig
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.core.ingress.builder import LLMServingArgs
from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig
from ray.serve._private.config import ReplicaConfig
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy
from ray.serve.schema import DeploymentSchema
from vllm.config import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs

from controller.validation import join, nearest
from replicas.workarounds.vllm_moved import moved
from serve_app.auto_model import AUTO
from serve_app.checks.findings import line, mapping
from serve_app.config import BLOCKS, SECURITY, text_problems
from serve_app.entries import OPTIONS, unknown_line
from serve_app.pd import ROLES

_ENV = inspect.signature(RuntimeEnv).parameters.keys() | RuntimeEnv.known_fields
# Keyword arguments of `serve.deployment`; types where Serve's schema has them. Serve refuses
# `version`.
# Reported with their nearest valid key by ``shapes``.
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
# Ray opens a file of this name on the machine that builds the application.
NAME_FILES = ("pip", "uv", "conda")
REPLICA = (
    "ray_actor_options",
    "placement_group_bundles",
    "placement_group_strategy",
    "placement_group_bundle_label_selector",
    "placement_group_fallback_strategy",
    "max_replicas_per_node",
)
# vLLM looks these up by the name of an enumeration's member, pydantic by its value.
BY_NAME = ("attention_backend", "mm_encoder_attn_backend")
# vLLM looks a parser up once the model is loaded: key, key of a plugin that brings more, registry.
# Imported if one is named: that costs a second.
PARSERS = (
    ("tool_call_parser", "tool_parser_plugin", "vllm.tool_parsers", "ToolParserManager"),
    ("reasoning_parser", "reasoning_parser_plugin", "vllm.reasoning", "ReasoningParserManager"),
)


@dataclass(frozen=True)
class Fields:
    """A mapping that no class describes: its keys, and the annotation of each one's value."""

    keys: Mapping[str, Any]


def unknown_keys(data: Any, kind: Any, where: str) -> list[str]:
    """A line for every key in ``data`` that ``kind`` does not know, however deep.

    Args:
        kind: an annotation: a pydantic model, a dataclass, ``Fields``, or lists, mappings and
            unions of them. Below any other annotation everything is free.
    """
    kind, found, inner = _chosen(kind, data), [], []
    origin, args = get_origin(kind), get_args(kind)
    if isinstance(data, list) and origin is list and args:
        inner = [(index, item, args[0]) for index, item in enumerate(data)]
    elif isinstance(data, dict) and origin is dict and args:
        inner = [(key, value, args[1]) for key, value in data.items()]
    elif isinstance(data, dict) and (fields := _fields_of(kind)) is not None:
        found = [
            unknown_line(where, str(key), [name for name in fields if not name.startswith("_")])
            for key in data
            if key not in fields
        ]
        inner = [(key, data[key], REFINED.get(key, fields[key])) for key in data if key in fields]
    for part, value, annotation in inner:
        found += unknown_keys(value, annotation, join(where, [part]))
    return found


def _fields_of(kind: Any) -> Mapping[str, Any] | None:
    """Keys and annotations of what ``kind`` describes; None if any key is allowed."""
    if isinstance(kind, Fields):
        return kind.keys
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        free = kind.model_config.get("extra") == "allow"
        return (
            None
            if free
            else {one.alias or n: one.annotation for n, one in kind.model_fields.items()}
        )
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        # A type that is still text belongs to a module that postpones annotations: free below.
        return {
            field.name: Any if isinstance(field.type, str) else field.type
            for field in dataclasses.fields(kind)
            if field.init
        }
    return None


def _chosen(kind: Any, data: Any) -> Any:
    """The member of a union that ``data`` is meant for; the kind itself if it is no union."""
    if get_origin(kind) is Annotated:
        return _chosen(get_args(kind)[0], data)
    if get_origin(kind) not in (Union, types.UnionType):
        return kind
    members = [_chosen(member, data) for member in get_args(kind)]
    if not isinstance(data, dict):
        return next((member for member in members if get_origin(member) is list), Any)
    described = [member for member in members if _fields_of(member) is not None]
    tagged = [member for member in described if _has_tag(member, data)]
    mappings = [member for member in members if get_origin(member) is dict]
    return next(iter(tagged or described or mappings), Any)


def _has_tag(kind: Any, data: Mapping[str, Any]) -> bool:
    fields = _fields_of(kind) or {}
    return any(get_origin(a) is Literal and data.get(n) in get_args(a) for n, a in fields.items())


RUNTIME_ENV = Fields(
    {
        **dict.fromkeys(_ENV - {"_validate", "kwargs"}, Any),
        "config": Fields(dict.fromkeys(RuntimeEnvConfig.known_fields, Any)),
    }
)
# Whatever holds a key of this name has it as a plain mapping.
REFINED = {"runtime_env": RUNTIME_ENV, "autoscaling_policy": AutoscalingPolicy}
DEPLOYMENT = Fields({key: (_fields_of(DeploymentSchema) or {}).get(key, Any) for key in OPTIONS})
# Ray Serve LLM sorts engine_kwargs into vLLM's engine and front-end arguments by their names.
ENGINE = Fields(
    {
        **(_fields_of(moved("FrontendArgs")) or {}),
        **(_fields_of(AsyncEngineArgs) or {}),
        "speculative_config": SpeculativeConfig,
    }
)
ENTRY = Fields(
    {
        **(_fields_of(LLMConfig) or {}),
        "placement_group_config": PlacementGroupConfig,
        "deployment_config": DEPLOYMENT,
        "engine_kwargs": ENGINE,
        **dict.fromkeys(BLOCKS, Any),  # they name their own unknown keys
    }
)
_SHARED = {"ingress_deployment_config": DEPLOYMENT, SECURITY: Any}
ARGS = Fields(
    {
        **(_fields_of(LLMServingArgs) or {}),
        **_SHARED,
        "llm_configs": GenericAlias(list, (ENTRY,)),
        AUTO: Any,
    }
)
PD_ARGS = Fields({**(_fields_of(PDServingArgs) or {}), **_SHARED, **dict.fromkeys(ROLES, ENTRY)})


def value_problems(kind: Any, data: Any, where: str) -> list[str]:
    """What ``kind`` (a model, dataclass or annotation) refuses in ``data``, except unknown keys."""
    return call_problems(lambda: TypeAdapter(kind).validate_python(data), data, where)


def call_problems(validate: Callable[[], Any], data: Any, where: str) -> list[str]:
    """What a call that validates ``data`` refuses.

    Such calls also import classes and policies by name, so any error is a finding.
    """
    try:
        validate()
    except ValidationError as error:
        return _lines(error, data, where)
    except Exception as error:
        return [f"{where or 'top level'}: {type(error).__name__}: {_one_line(error)}"]
    return []


def _lines(error: ValidationError, data: Any, where: str) -> list[str]:
    found = []
    for item in error.errors():
        if item["type"] in UNKNOWN_KEY:
            continue
        path = _path(item["loc"], data)
        if item["type"] in ("missing", "missing_argument"):
            found.append(f"{join(where, [*path, item['loc'][-1]])}: required key is missing")
            continue
        place = join(where, path)
        cause = getattr(item.get("ctx", {}).get("error"), "__cause__", None)
        if isinstance(cause, ValidationError):  # Ray wraps a model's error in another's
            found += _lines(cause, item["input"], place)
        else:
            message = _one_line(cause) if cause else item["msg"]
            for prefix in ("Value error, ", "Assertion failed, "):
                message = message.removeprefix(prefix)
            found.append(line(place, item["input"], message))
    return found


def _path(location: tuple[int | str, ...], data: Any) -> list[int | str]:
    """The parts of pydantic's location that are keys of ``data``; the rest name union members."""
    path: list[int | str] = []
    for part in location:
        inner = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(inner, dict) and part in inner:
            data = inner[part]
            path.append(part)
    return path


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def deployment_problems(options: dict[str, Any], where: str, *, local_paths: bool) -> list[str]:
    """What Ray Serve refuses in a deployment's options, also where its schema takes any mapping.

    Args:
        local_paths: as ``env_problems`` takes it.
    """
    actor, place = mapping(options, "ray_actor_options"), f"{where}.ray_actor_options"
    block, found = (
        options.get("autoscaling_config"),
        env_problems(actor, place, local_paths=local_paths),
    )
    if isinstance(block, dict):
        auto = options.get("num_replicas") == "auto"
        given = AutoscalingConfig.default().model_dump(exclude_unset=True) if auto else {}
        place = f"{where}.autoscaling_config"
        found += value_problems(AutoscalingConfig, {**given, **block}, place)
    return found + value_problems(DeploymentSchema, options, where)


def replica_problems(options: Mapping[str, Any], where: str) -> list[str]:
    """What Serve refuses in the resources of a deployment's replicas, taken together.

    Serve looks at them only while it places a replica, and then tries again for ever.
    """
    given = {key: options[key] for key in REPLICA if options.get(key) is not None}
    actor = dict(given.pop("ray_actor_options", {}))  # in which Ray writes its defaults
    return call_problems(
        lambda: ReplicaConfig.create("replica", ray_actor_options=actor, **given), options, where
    )


def env_problems(holder: Mapping[str, Any], where: str, *, local_paths: bool) -> list[str]:
    """What Ray refuses in the ``runtime_env`` in ``holder``.

    Args:
        local_paths: files that it names are on this machine.
    """
    block, place = holder.get("runtime_env"), f"{where}.runtime_env"
    if not isinstance(block, dict):
        return []
    given = {key: value for key, value in block.items() if value is not None}
    if not local_paths:
        given = {k: v for k, v in given.items() if k not in NAME_FILES or not isinstance(v, str)}
    variables = text_problems(given.get("env_vars"), f"{place}.env_vars")
    return variables or call_problems(lambda: RuntimeEnv(**given), given, place)


def engine_problems(kwargs: Mapping[str, Any], where: str) -> list[str]:
    """What vLLM refuses in types and values of known engine arguments."""
    given = {k: v for k, v in kwargs.items() if v is not None and k in ENGINE.keys}
    found = []
    for key, value in given.items():
        found += _argument_problems(key, value, join(where, [key]))
    for key, plugin, module, registry in PARSERS:
        if given.get(key) and not given.get(plugin):
            names = getattr(import_module(module), registry).list_registered()
            if given[key] not in names:
                found.append(line(f"{where}.{key}", given[key], nearest(str(given[key]), names)))
    return found or _between_problems(given, where)


def _between_problems(given: Mapping[str, Any], where: str) -> list[str]:
    """The first rule between arguments of vLLM's server that is broken, in vLLM's words.

    Ray does not check it: a replica starts, and refuses requests. A chat template may be elsewhere.
    """
    kinds = (moved("FrontendArgs"), AsyncEngineArgs)
    every = [one for kind in kinds for one in fields(kind) if one.default is not MISSING]
    asked = {"api_server_count": None, **{one.name: one.default for one in every}, **given}
    try:
        moved("validate_parsed_serve_args")(Namespace(**{**asked, "chat_template": None}))
    except (TypeError, ValueError) as error:
        text = str(error).removeprefix("Error: ")
        text = re.sub("--([a-z][a-z-]+)", lambda flag: flag[1].replace("-", "_"), text)
        key = min((key for key in given if key in text), key=text.find, default=None)
        return [f"{where}: {text}" if key is None else line(join(where, [key]), given[key], text)]
    return []


def _argument_problems(key: str, value: Any, where: str) -> list[str]:
    annotation = str if key in BY_NAME else ENGINE.keys[key]
    if annotation is SpeculativeConfig:  # vLLM adds the target model's configuration first
        annotation = dict[str, Any]
    try:
        kind = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a config class, which has its own
        kind = TypeAdapter(annotation)
    if isinstance(value, dict | list):
        return call_problems(lambda: kind.validate_python(value), value, where)
    # vLLM does not convert it: "false" would count as true. Enumerations are written as text.
    text = json.dumps(value, default=str)
    return call_problems(lambda: kind.validate_json(text, strict=True), value, where)
