"""The keys that Ray Serve, Ray Serve LLM and vLLM take, read from their own classes.

Ray Serve drops a key that it does not know without a word. If a class declares a plain mapping
and validates it later (or never) by another class, that class is named here. Importing this module
imports Ray Serve LLM and vLLM: seconds.
"""

import dataclasses
import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from ray import serve
from ray.llm._internal.common.placement import PlacementGroupConfig
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.core.ingress.builder import LLMServingArgs
from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig
from ray.serve.config import AutoscalingPolicy
from ray.serve.schema import DeploymentSchema
from vllm.config import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs

from controller.validation import join
from replicas.workarounds.vllm_moved import moved
from serve_app.auto_model import AUTO
from serve_app.config import BLOCKS, SECURITY
from serve_app.pd import ROLES
from serve_app.replaced import unknown_line


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


_ENV = inspect.signature(RuntimeEnv).parameters.keys() | RuntimeEnv.known_fields
RUNTIME_ENV = Fields(
    {
        **dict.fromkeys(_ENV - {"_validate", "kwargs"}, Any),
        "config": Fields(dict.fromkeys(RuntimeEnvConfig.known_fields, Any)),
    }
)
# Whatever holds a key of this name has it as a plain mapping.
REFINED = {"runtime_env": RUNTIME_ENV, "autoscaling_policy": AutoscalingPolicy}
# Keyword arguments of `serve.deployment`; types where Serve's schema has them. Serve refuses
# `version`.
_OPTIONS = inspect.signature(serve.deployment).parameters.keys() - {"_func_or_class", "version"}
DEPLOYMENT = Fields({key: (_fields_of(DeploymentSchema) or {}).get(key, Any) for key in _OPTIONS})
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
