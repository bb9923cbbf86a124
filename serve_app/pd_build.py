"""Prefill and decode apart as Ray Serve LLM builds it, with our server classes in place of its."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from ray import serve
from ray.llm._internal.serve.constants import RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING
from ray.serve import Application

from controller.errors import ConfigError
from controller.validation import join, unknown_key
from replicas.door.settings import Security
from replicas.server.startup import gc_paused
from serve_app.config import SECURITY
from serve_app.pd import (
    DECODE,
    NAME_PREFIX,
    PREFILL,
    ROLES,
    pair_problems,
    pd_llm_config,
    role_entries,
)

with gc_paused():  # it imports vLLM
    from ray.llm._internal.common.dict_utils import maybe_apply_llm_deployment_config_defaults
    from ray.llm._internal.serve.core.configs.openai_api_models import to_model_metadata
    from ray.llm._internal.serve.core.ingress.builder import (
        _build_direct_streaming_llm_deployment,
        _build_openai_ingress_request_router,
        _validate_direct_streaming_ingress_config,
    )
    from ray.llm._internal.serve.core.ingress.ingress import make_fastapi_ingress
    from ray.llm._internal.serve.core.server.builder import build_llm_deployment
    from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs

    from serve_app.entries import given_entry, llm_config

KEYS = (*PDServingArgs.model_fields, SECURITY)


def pd_serving_args(args: Mapping[str, Any], security: Security) -> PDServingArgs:
    """The arguments as Ray Serve LLM takes them, our blocks turned into its settings.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    if found := pair_problems(args, "args"):
        raise ConfigError(found)
    if unknown := [unknown_key("args", str(key), KEYS) for key in args if key not in KEYS]:
        raise ConfigError(unknown)
    given = {key: given_entry(args[key], key) for key in ROLES}
    where = {key: at for key, (_, at) in given.items()}
    entries = role_entries(given[PREFILL][0], given[DECODE][0], where)
    configs = {
        key: llm_config(pd_llm_config(entry, key, where[key], security), where[key])
        for key, entry in entries.items()
    }
    theirs = {key: value for key, value in args.items() if key != SECURITY}
    try:
        return PDServingArgs.model_validate({**theirs, **configs})
    except ValidationError as error:
        found = [f"{join('args', e['loc'])}: {e['msg']}" for e in error.errors()]
        raise ConfigError(found) from None


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
