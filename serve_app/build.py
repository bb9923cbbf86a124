"""The application builder that ``serve deploy`` calls."""

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ray import serve
from ray.llm._internal.serve.constants import RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from controller.errors import ConfigError
from controller.validation import join, problems, shown, unknown_key
from replicas.door.settings import Security, parse_security
from replicas.startup import gc_paused
from serve_app.config import SECURITY, ray_llm_config
from serve_app.elsewhere import split_problems
from serve_app.replaced import unknown_line
from serve_app.source import read_documents

with gc_paused():  # it imports vLLM
    from ray.llm._internal.serve.core.ingress.builder import IngressClsConfig
    from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
    from ray.llm._internal.serve.engines.vllm.vllm_models import AsyncEngineArgs, FrontendArgs
    from ray.serve.llm import LLMConfig, LLMServingArgs, build_openai_app

    from serve_app.ingress import AdmissionIngress

ENGINE_KEYS = tuple(
    {one.name for kind in (FrontendArgs, AsyncEngineArgs) for one in dataclasses.fields(kind)}
)
OPTIONS = tuple(set(inspect.signature(serve.deployment).parameters) - {"_func_or_class", "version"})
KEYS = (*LLMServingArgs.model_fields, SECURITY)


def build_app(args: Mapping[str, Any] | LLMServingArgs) -> Application:
    """Ray Serve LLM's OpenAI-compatible application, every replica of it under the controller.

    Args:
        args: what ``ray.serve.llm:build_openai_app`` takes; each entry of ``llm_configs`` (a
            mapping, or the path of a YAML file with one) may hold ``batching`` and ``scaling``. An
            ``LLMConfig`` has no room for these: its replicas go by their defaults. Beside
            ``llm_configs`` there may be ``security``.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """
    checked = serving_args(args)
    if not RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
        _guard(checked.ingress_cls_config, _security(args))
    try:
        app = build_openai_app(checked)
    except ValueError as error:  # Ray's own rules, as that direct streaming takes one model
        raise ConfigError([f"args: {error}"]) from None
    if app._ingress_request_router and not any(map(needs_llm_router, checked.llm_configs)):
        _leave_it_to_haproxy(app)
    return app


def _guard(ingress: IngressClsConfig, security: Security) -> None:
    """Put our door on Ray Serve LLM's own ingress, which is what answers HTTP then."""
    if ingress.ingress_cls is OpenAiIngress:
        ingress.ingress_cls = AdmissionIngress
    if issubclass(ingress.ingress_cls, AdmissionIngress):
        kwargs = ingress.ingress_extra_kwargs or {}
        ingress.ingress_extra_kwargs = {SECURITY: security.model_dump(), **kwargs}
    elif security != Security():
        raise ConfigError(
            [
                f"args.{SECURITY}: has no effect with an ingress_cls of your own; derive it from"
                " serve_app.ingress:AdmissionIngress"
            ]
        )


def ingress_class(given: Any) -> type[OpenAiIngress]:
    """The class that answers HTTP where replicas do not, for an ``ingress_cls_config``."""
    config = IngressClsConfig.model_validate({} if given is None else given)
    theirs = config.ingress_cls
    return AdmissionIngress if theirs is OpenAiIngress else theirs


def _leave_it_to_haproxy(app: Application) -> None:
    """Let HAProxy send each request where fewest are open, without asking a router's replica."""
    app._ingress_request_router = None
    # Ray Serve LLM's round robin was meant for that router, and is refused without one.
    app._bound_deployment = app._bound_deployment.options(
        request_router_config=RequestRouterConfig()
    )


def needs_llm_router(config: LLMConfig) -> bool:
    """Whether somebody has to be asked for a replica: a request router, or who knows adapters."""
    named = config.deployment_config.get("request_router_config")
    return named is not None or config.lora_config is not None


def serving_args(args: Mapping[str, Any] | LLMServingArgs) -> LLMServingArgs:
    """The arguments as Ray Serve LLM takes them, our blocks turned into its settings.

    Raises:
        ConfigError: see ``build_app``.
    """
    if isinstance(args, LLMServingArgs):
        args = dict(args)
    if not isinstance(args, Mapping):
        raise ConfigError([f"args: {shown(args)} is not allowed: a mapping or LLMServingArgs"])
    if elsewhere := split_problems(args, "args"):
        raise ConfigError(elsewhere)
    unknown = [unknown_key("args", str(key), KEYS) for key in args if key not in KEYS]
    if unknown:
        raise ConfigError(unknown)
    entries = args.get("llm_configs")
    if not isinstance(entries, list | tuple) or not entries:
        got = shown(entries)
        raise ConfigError([f"llm_configs: must be a list with at least one model, got {got}"])
    security = _security(args)
    configs = [
        _config(entry, f"llm_configs[{index}]", security) for index, entry in enumerate(entries)
    ]
    theirs = {key: value for key, value in args.items() if key != SECURITY}
    try:
        return LLMServingArgs.model_validate({**theirs, "llm_configs": configs})
    except ValidationError as error:
        found = [f"{join('args', e['loc'])}: {e['msg']}" for e in error.errors()]
        raise ConfigError(found) from None


def _security(args: Mapping[str, Any] | LLMServingArgs) -> Security:
    return parse_security(args.get(SECURITY) if isinstance(args, Mapping) else None)


def _config(entry: Any, where: str, security: Security) -> LLMConfig:
    if isinstance(entry, str):
        entry, where = _read(entry, where), f"{where} ({entry})"
    ours = ray_llm_config(_mapping(entry, where), where, security)
    if found := _dropped(ours, where):
        raise ConfigError(found)
    try:
        return LLMConfig.model_validate(ours)
    except ValidationError as error:
        raise ConfigError(problems(error, LLMConfig, where)) from None


def _dropped(entry: Mapping[str, Any], where: str) -> list[str]:
    """Keys over which Ray Serve and Ray Serve LLM would stumble without saying where they stand."""
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
    if isinstance(entry, LLMConfig):
        entry = _given(entry)
    if not isinstance(entry, Mapping):
        raise ConfigError(
            [f"{where}: {shown(entry)} is not allowed: a mapping, the path of one, or LLMConfig"]
        )
    return dict(entry)


def _given(model: BaseModel) -> dict[str, Any]:
    """What was set in Ray's own object, also inside of a mapping that it began with.

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
