"""The application builder that ``serve deploy`` calls."""

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError
from ray import serve
from ray.llm._internal.serve.constants import RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from controller.errors import ConfigError
from controller.validation import join, parse, shown, unknown_key
from replicas.door.settings import Security, parse_security
from replicas.server.startup import gc_paused
from serve_app.auto_model import AUTO, NO_INGRESS, AutoModel, problems
from serve_app.config import SECURITY, of_ranks, ray_llm_config
from serve_app.pd import (
    DECODE,
    NAME_PREFIX,
    PREFILL,
    ROLES,
    is_pd,
    pair_problems,
    pd_llm_config,
    role_entries,
)

with gc_paused():  # it imports vLLM
    from ray.llm._internal.common.dict_utils import maybe_apply_llm_deployment_config_defaults
    from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
    from ray.llm._internal.serve.core.ingress.builder import (
        IngressClsConfig,
        _build_direct_streaming_llm_deployment,
        _build_openai_ingress_request_router,
        _validate_direct_streaming_ingress_config,
    )
    from ray.llm._internal.serve.core.ingress.ingress import OpenAiIngress, make_fastapi_ingress
    from ray.llm._internal.serve.core.server.builder import build_llm_deployment
    from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs
    from ray.serve.llm import LLMConfig, LLMServingArgs, build_openai_app

    from serve_app.entries import given_entry, llm_config
    from serve_app.ingress import AdmissionIngress

Args: TypeAlias = Mapping[str, Any] | LLMServingArgs | PDServingArgs
A = TypeVar("A", LLMServingArgs, PDServingArgs)


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
    _refuse_unknown(args, (*LLMServingArgs.model_fields, SECURITY, AUTO))
    entries = args.get("llm_configs")
    if not isinstance(entries, list | tuple) or not entries:
        got = shown(entries)
        raise ConfigError([f"llm_configs: must be a list with at least one model, got {got}"])
    security = _security(args)
    given = [given_entry(entry, f"llm_configs[{index}]") for index, entry in enumerate(entries)]
    configs = [llm_config(ray_llm_config(entry, at, security), at) for entry, at in given]
    return _validated(LLMServingArgs, args, {"llm_configs": configs})


def pd_serving_args(args: Mapping[str, Any], security: Security) -> PDServingArgs:
    """The arguments as Ray Serve LLM takes them, our blocks turned into its settings.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    if found := pair_problems(args, "args"):
        raise ConfigError(found)
    _refuse_unknown(args, (*PDServingArgs.model_fields, SECURITY))
    given = {key: given_entry(args[key], key) for key in ROLES}
    where = {key: at for key, (_, at) in given.items()}
    entries = role_entries(given[PREFILL][0], given[DECODE][0], where)
    configs = {
        key: llm_config(pd_llm_config(entry, key, where[key], security), where[key])
        for key, entry in entries.items()
    }
    return _validated(PDServingArgs, args, configs)


def build_pd(args: PDServingArgs) -> Application:
    """Ray's ``build_pd_openai_app``, which names its server classes itself.

    Raises:
        ValueError: Ray's own rules, such as no ingress to configure with direct streaming.
    """
    prefill = build_llm_deployment(args.prefill_config, name_prefix=NAME_PREFIX["prefill"])
    decode, bound = args.decode_config, {"prefill_server": prefill}
    prefix = NAME_PREFIX["decode"]
    if RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING:
        _validate_direct_streaming_ingress_config(
            args.ingress_deployment_config, args.ingress_cls_config
        )
        server = _build_direct_streaming_llm_deployment(
            decode, name_prefix=prefix, bind_kwargs=bound
        )
        router = _build_openai_ingress_request_router(server=server, llm_config=decode)
        return server._with_ingress_request_router(router)
    server = build_llm_deployment(decode, name_prefix=prefix, bind_kwargs=bound)
    ingress = args.ingress_cls_config
    options = maybe_apply_llm_deployment_config_defaults(
        ingress.ingress_cls.get_deployment_options([decode]), args.ingress_deployment_config
    )
    model, lora = decode.model_id, decode.lora_config
    return serve.deployment(make_fastapi_ingress(ingress.ingress_cls), **options).bind(
        llm_deployments={model: server},
        model_cards={model: to_model_metadata(model, decode)},
        lora_paths={model: lora.dynamic_lora_loading_path} if lora is not None else {},
        **ingress.ingress_extra_kwargs,
    )


def _refuse_unknown(args: Mapping[str, Any], allowed: Collection[str]) -> None:
    if unknown := [unknown_key("args", str(key), allowed) for key in args if key not in allowed]:
        raise ConfigError(unknown)


def _validated(kind: type[A], args: Mapping[str, Any], configs: Mapping[str, Any]) -> A:
    """Ray's arguments, with these in place of the entries."""
    theirs = {key: value for key, value in args.items() if key not in (SECURITY, AUTO)}
    try:
        return kind.model_validate({**theirs, **configs})
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
