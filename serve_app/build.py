"""The application builder that ``serve deploy`` calls."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from pydantic import ValidationError
from ray.llm._internal.serve.constants import RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from controller.errors import ConfigError
from controller.validation import join, parse, shown, unknown_key
from replicas.door.settings import Security, parse_security
from replicas.server.startup import gc_paused
from serve_app.auto_model import AUTO, NO_INGRESS, AutoModel, problems
from serve_app.config import SECURITY, ray_llm_config
from serve_app.elsewhere import of_ranks
from serve_app.pd import is_pd

with gc_paused():  # it imports vLLM
    from ray.llm._internal.serve.core.ingress.builder import IngressClsConfig
    from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress
    from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs
    from ray.serve.llm import LLMConfig, LLMServingArgs, build_openai_app

    from serve_app.entries import given_entry, llm_config
    from serve_app.ingress import AdmissionIngress
    from serve_app.pd_build import build_pd, pd_serving_args

KEYS = (*LLMServingArgs.model_fields, SECURITY, AUTO)


Args: TypeAlias = Mapping[str, Any] | LLMServingArgs | PDServingArgs


def build_app(args: Args) -> Application:
    """Ray Serve LLM's OpenAI-compatible application, all its replicas under the controller.

    Args:
        args: what ``ray.serve.llm:build_openai_app`` takes; each entry of ``llm_configs`` (a
            mapping, or the path of a YAML file with one) may hold ``batching`` and ``scaling``. An
            ``LLMConfig`` has no room for these: its replicas use the defaults. Next to
            ``llm_configs`` there may be ``security``. In its place ``prefill_config`` and
            ``decode_config``, two such entries, serve one model by two kinds of engines.

    Raises:
        ConfigError: naming the key, its value and what is allowed.
    """
    checked = _checked(args)
    if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
        _refuse_auto_model(args)
    else:
        _guard(checked.ingress_cls_config, _security(args), _auto_model(args, checked))
    apart = isinstance(checked, PDServingArgs)
    try:
        app = build_pd(checked) if apart else build_openai_app(checked)
    except ValueError as error:  # Ray's own rules, such as one model with direct streaming
        raise ConfigError([f"args: {error}"]) from None
    asked = [checked.decode_config] if apart else checked.llm_configs
    if app._ingress_request_router and not any(map(needs_llm_router, asked)):
        _leave_it_to_haproxy(app)
    return app


def _checked(args: Args) -> LLMServingArgs | PDServingArgs:
    if isinstance(args, PDServingArgs):
        args = dict(args)
    if isinstance(args, Mapping) and is_pd(args):
        return pd_serving_args(args, _security(args))
    return serving_args(args)


def _guard(ingress: IngressClsConfig, security: Security, auto: AutoModel | None = None) -> None:
    """Put our middleware on Ray Serve LLM's own ingress, which then answers HTTP."""
    if ingress.ingress_cls is OpenAiIngress:
        ingress.ingress_cls = AdmissionIngress
    if issubclass(ingress.ingress_cls, AdmissionIngress):
        kwargs = ingress.ingress_extra_kwargs or {}
        ours = {SECURITY: security.model_dump()} | ({AUTO: auto.model_dump()} if auto else {})
        ingress.ingress_extra_kwargs = {**ours, **kwargs}
    elif security != Security() or auto:
        raise ConfigError(
            [
                f"args.{AUTO if auto else SECURITY}: has no effect with an ingress_cls of your own;"
                " derive it from serve_app.ingress:AdmissionIngress"
            ]
        )


def _refuse_auto_model(args: Args) -> None:
    if isinstance(args, Mapping) and AUTO in args:
        raise ConfigError([f"{AUTO}: {NO_INGRESS}"])


def _leave_it_to_haproxy(app: Application) -> None:
    """Let HAProxy send each request to the replica with the fewest open ones, without a router."""
    app._ingress_request_router = None
    # Ray Serve LLM's round robin was meant for that router, and is refused without one.
    app._bound_deployment = app._bound_deployment.options(
        request_router_config=RequestRouterConfig()
    )


def needs_llm_router(config: LLMConfig) -> bool:
    """Whether a replica must be asked for: from a request router, or one that knows adapters."""
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
    if found := of_ranks(args, "args"):
        raise ConfigError(found)
    unknown = [unknown_key("args", str(key), KEYS) for key in args if key not in KEYS]
    if unknown:
        raise ConfigError(unknown)
    entries = args.get("llm_configs")
    if not isinstance(entries, list | tuple) or not entries:
        got = shown(entries)
        raise ConfigError([f"llm_configs: must be a list with at least one model, got {got}"])
    security = _security(args)
    given = [given_entry(entry, f"llm_configs[{index}]") for index, entry in enumerate(entries)]
    configs = [llm_config(ray_llm_config(entry, at, security), at) for entry, at in given]
    theirs = {key: value for key, value in args.items() if key not in (SECURITY, AUTO)}
    try:
        return LLMServingArgs.model_validate({**theirs, "llm_configs": configs})
    except ValidationError as error:
        found = [f"{join('args', e['loc'])}: {e['msg']}" for e in error.errors()]
        raise ConfigError(found) from None


def _security(args: Args) -> Security:
    return parse_security(args.get(SECURITY) if isinstance(args, Mapping) else None)


def _auto_model(args: Args, checked: LLMServingArgs | PDServingArgs) -> AutoModel | None:
    block = args.get(AUTO) if isinstance(args, Mapping) else None
    if block is None or isinstance(checked, PDServingArgs):
        return None
    auto = parse(AutoModel, block, AUTO)
    if found := problems(auto, [one.model_id for one in checked.llm_configs], AUTO):
        raise ConfigError(found)
    return auto
