"""An entry of ``llm_configs`` as it is given, and as Ray Serve LLM takes it."""

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ray import serve

from controller.errors import ConfigError
from controller.validation import problems, shown
from replicas.server.startup import gc_paused
from serve_app.replaced import unknown_line
from serve_app.source import read_documents

with gc_paused():  # it imports vLLM
    from ray.llm._internal.serve.core.configs.llm_config import LLMConfig as AnyLLMConfig
    from ray.llm._internal.serve.engines.vllm.vllm_models import AsyncEngineArgs, FrontendArgs
    from ray.serve.llm import LLMConfig

ENGINE_KEYS = tuple(
    {one.name for kind in (FrontendArgs, AsyncEngineArgs) for one in dataclasses.fields(kind)}
)
OPTIONS = tuple(set(inspect.signature(serve.deployment).parameters) - {"_func_or_class", "version"})


def given_entry(entry: Any, where: str) -> tuple[dict[str, Any], str]:
    """The entry as a mapping, and its place.

    Args:
        entry: a mapping, the path of a YAML file with one, or Ray's ``LLMConfig``.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(entry, str):
        entry, where = _read(entry, where), f"{where} ({entry})"
    return _mapping(entry, where), where


def llm_config(ours: dict[str, Any], where: str) -> LLMConfig:
    """Ray's object of an entry without our blocks.

    Raises:
        ConfigError: naming each wrong key.
    """
    if found := _dropped(ours, where):
        raise ConfigError(found)
    try:
        return LLMConfig.model_validate(ours)
    except ValidationError as error:
        raise ConfigError(problems(error, LLMConfig, where)) from None


def _dropped(entry: Mapping[str, Any], where: str) -> list[str]:
    """Keys that make Ray Serve and Ray Serve LLM fail without naming their place."""
    found = []
    for holder, allowed in (("engine_kwargs", ENGINE_KEYS), ("deployment_config", OPTIONS)):
        found += [
            unknown_line(f"{where}.{holder}", str(key), allowed)
            for key in entry[holder]
            if key not in allowed
        ]
    return found


def _read(path: str, where: str) -> Any:
    try:
        return read_documents(Path(path))[0]
    except ConfigError as error:
        found = [f"{where}: {path}: {problem}" for problem in error.problems]
        raise ConfigError(found) from None


def _mapping(entry: Any, where: str) -> dict[str, Any]:
    if isinstance(entry, AnyLLMConfig):  # also of PDServingArgs, which makes no public ones
        entry = _given(entry)
    if not isinstance(entry, Mapping):
        raise ConfigError(
            [f"{where}: {shown(entry)} is not allowed: a mapping, the path of one, or LLMConfig"]
        )
    return dict(entry)


def _given(model: BaseModel) -> dict[str, Any]:
    """The values that were set in Ray's own object, also inside a default mapping.

    Such a change is not among the fields that pydantic counts as set.
    """
    kept = {}
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        default = info.get_default(call_default_factory=True)
        # The tag that says which of several classes it is, as `kind` of an accelerator_config.
        tag = get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1
        if tag or name in model.model_fields_set or value != default:
            kept[name] = _given(value) if isinstance(value, BaseModel) else value
    return kept
