"""The keys that Ray Serve, Ray Serve LLM and vLLM take, read from their own classes.

Where one of them declares a plain mapping and validates it later (or never) by another class, that
class is named here. Importing this module imports Ray Serve LLM and vLLM: seconds.
"""

import inspect
from types import GenericAlias
from typing import Any

from ray import serve
from ray.llm._internal.common.placement import PlacementGroupConfig
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.core.ingress.builder import LLMServingArgs
from ray.llm._internal.serve.serving_patterns.prefill_decode.builder import PDServingArgs
from ray.runtime_env import RuntimeEnv, RuntimeEnvConfig
from ray.serve.config import AutoscalingPolicy, ControllerOptions
from ray.serve.schema import DeploymentSchema, RayActorOptionsSchema, ServeApplicationSchema
from vllm.config import SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs

from replicas.workarounds.vllm_moved import moved
from serve_app.auto_model import AUTO
from serve_app.checks.keys import Fields, Refinements, fields_of
from serve_app.config import BLOCKS, SECURITY
from serve_app.pd import ROLES


def _runtime_env() -> Fields:
    keys = inspect.signature(RuntimeEnv).parameters.keys() | RuntimeEnv.known_fields
    inner = Fields(dict.fromkeys(RuntimeEnvConfig.known_fields, Any))
    return Fields({**dict.fromkeys(keys - {"_validate", "kwargs"}, Any), "config": inner})


def _deployment_options() -> Fields:
    """Keyword arguments of ``serve.deployment``; types where Serve's schema has them."""
    keys = inspect.signature(serve.deployment).parameters.keys()
    schema = fields_of(DeploymentSchema) or {}
    # Serve refuses `version`.
    return Fields({key: schema.get(key, Any) for key in keys - {"_func_or_class", "version"}})


RUNTIME_ENV = _runtime_env()
DEPLOYMENT = _deployment_options()
# Ray Serve LLM sorts engine_kwargs into vLLM's engine and front-end arguments by their names.
ENGINE = Fields(
    {
        **(fields_of(moved("FrontendArgs")) or {}),
        **(fields_of(AsyncEngineArgs) or {}),
        "speculative_config": SpeculativeConfig,
    }
)
ENTRY = Fields(
    {
        **(fields_of(LLMConfig) or {}),
        "runtime_env": RUNTIME_ENV,
        "placement_group_config": PlacementGroupConfig,
        "deployment_config": DEPLOYMENT,
        "engine_kwargs": ENGINE,
        **dict.fromkeys(BLOCKS, Any),  # they name their own unknown keys
    }
)
ARGS = Fields(
    {
        **(fields_of(LLMServingArgs) or {}),
        "llm_configs": GenericAlias(list, (ENTRY,)),
        "ingress_deployment_config": DEPLOYMENT,
        SECURITY: Any,
        AUTO: Any,
    }
)
PD_ARGS = Fields(
    {
        **(fields_of(PDServingArgs) or {}),
        **dict.fromkeys(ROLES, ENTRY),
        "ingress_deployment_config": DEPLOYMENT,
        SECURITY: Any,
    }
)
REFINEMENTS: Refinements = {
    (ServeApplicationSchema, "runtime_env"): RUNTIME_ENV,
    (ServeApplicationSchema, "autoscaling_policy"): AutoscalingPolicy,
    (ControllerOptions, "runtime_env"): RUNTIME_ENV,
    (RayActorOptionsSchema, "runtime_env"): RUNTIME_ENV,
}
