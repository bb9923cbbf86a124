"""Validate plain data by the classes of Ray and vLLM; one line per finding."""

import json
import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from ray.runtime_env import RuntimeEnv
from ray.serve._private.config import ReplicaConfig
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema
from vllm.config import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs

from controller.validation import join, nearest
from replicas.workarounds.vllm_moved import moved
from serve_app.checks.findings import line
from serve_app.checks.objects import mapping
from serve_app.checks.shapes import ENGINE
from serve_app.runtime_env import text_problems

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
