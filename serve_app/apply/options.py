"""The options of a model's deployment as Ray Serve LLM builds it, and overrides laid over them.

The comparison has to start from these: if an entry names neither a number of replicas nor
scaling, Ray Serve LLM scales between one and one. The imports are light: none of vLLM.
"""

from typing import Any

from controller.errors import ConfigError
from controller.validation import parse
from replicas.door.settings import Security
from serve_app.config import ray_llm_config

Data = dict[str, Any]
# Options that Ray Serve changes without another replica.
OPTIONS = (
    "num_replicas",
    "autoscaling_config",
    "max_ongoing_requests",
    "graceful_shutdown_timeout_s",
    "graceful_shutdown_wait_loop_s",
    "health_check_period_s",
    "health_check_timeout_s",
)
COUNT, SCALING = OPTIONS[:2]


def built_options(entry: Data, security: Security, where: str) -> Data:
    """The options of an entry's deployment: ``num_replicas`` is None if ``autoscaling_config``,
    without its defaults, is not.

    Raises:
        ConfigError: Ray Serve takes no such options.
    """
    from ray import serve
    from ray.llm._internal.common import dict_utils
    from ray.llm._internal.serve import constants

    given = ray_llm_config(entry, where, security)["deployment_config"]
    # As ray.llm's builder has them, which imports vLLM.
    defaults = {
        "max_ongoing_requests": constants.DEFAULT_MAX_ONGOING_REQUESTS,
        "health_check_period_s": constants.DEFAULT_HEALTH_CHECK_PERIOD_S,
        "health_check_timeout_s": constants.DEFAULT_HEALTH_CHECK_TIMEOUT_S,
        SCALING: {"target_ongoing_requests": constants.DEFAULT_MAX_TARGET_ONGOING_REQUESTS},
    }
    merged = dict_utils.maybe_apply_llm_deployment_config_defaults(defaults, given)
    merged[SCALING], policy = _without_policy(merged.get(SCALING))
    try:
        made = serve.deployment(object, **{k: merged[k] for k in OPTIONS if k in merged})
    except ValueError as error:
        line = " ".join(str(error).split())
        raise ConfigError([f"{where}.deployment_config: {line}"]) from None
    options = of_deployment(made._deployment_config)
    if options[SCALING] is not None:
        options[SCALING] |= policy
    return options


def of_deployment(config: Any) -> Data:
    """The options of Ray Serve's ``DeploymentConfig``."""
    scaling = config.autoscaling_config
    found = {key: getattr(config, key) for key in OPTIONS}
    if scaling is not None:
        found |= {COUNT: None, SCALING: _plain(scaling)}
    return found


def _without_policy(scaling: Any) -> tuple[Any, Data]:
    """A block, and its policy apart: Ray would import it, and only the cluster may have it."""
    if not isinstance(scaling, dict):
        return scaling, {}
    return (
        {key: value for key, value in scaling.items() if key != "policy"},
        {key: value for key, value in scaling.items() if key == "policy"},
    )


def _plain(scaling: Any) -> Data:
    bounds = {"min_replicas": scaling.min_replicas, "max_replicas": scaling.max_replicas}
    return bounds | scaling.model_dump(mode="json", exclude_defaults=True)


def laid_over(built: Data, override: Data, where: str) -> Data:
    """The options that hold with an override, as Ray Serve lays it over those of the code.

    Raises:
        ConfigError: its ``autoscaling_config`` is wrong.
    """
    from ray.serve.config import AutoscalingConfig

    # Serve takes null only for no scaling.
    given = {k: override[k] for k in OPTIONS if override.get(k) is not None}
    if SCALING in override:
        given[SCALING] = override[SCALING]
    found = {**built, **given}
    block = found[SCALING]
    if found[COUNT] == "auto":
        auto = AutoscalingConfig.default().model_dump(exclude_unset=True)
        block = auto | (given.get(SCALING) or built[SCALING] or {})
    if block is not None:
        rest, policy = _without_policy(block)
        block = _plain(parse(AutoscalingConfig, rest, f"{where}.{SCALING}")) | policy
    return {**found, SCALING: block, COUNT: None if block is not None else found[COUNT] or 1}


def to_send(built: Data, wanted: Data) -> Data:
    """The override by which a deployment that was built with ``built`` uses ``wanted``."""
    sent = {key: wanted[key] for key in OPTIONS if wanted[key] != built[key]}
    if wanted[SCALING] is not None:  # with it Serve takes no number; without it, it needs one
        sent.pop(COUNT, None)
    return sent
