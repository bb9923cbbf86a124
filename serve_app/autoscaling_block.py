"""Ray Serve's ``autoscaling_config``, with our policy if none is named."""

from collections.abc import Mapping
from typing import Any

from controller.errors import ConfigError

AUTOSCALING_POLICY = "serve_app.autoscaling:CapacityPolicy"
# Our policy has delays of its own, different for more and for fewer replicas (decision 22).
AUTOSCALING_DEFAULTS = {
    "upscale_delay_s": 0.0,
    "downscale_delay_s": 60.0,
    "metrics_interval_s": 2.0,
    "look_back_period_s": 10.0,
}


def with_policy(
    block: dict[str, Any], policy_kwargs: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The block as it is if it names a policy, else ours with our delays.

    Raises:
        ConfigError: its policy names no function, so Ray Serve would use its default.
    """
    policy = block.get("policy")
    if policy is None:
        ours = {"policy_function": AUTOSCALING_POLICY, "policy_kwargs": dict(policy_kwargs)}
        return {**AUTOSCALING_DEFAULTS, **block, "policy": ours}
    if not names_function(policy):
        raise ConfigError(
            [
                f"{where}.policy: {policy!r} names no policy_function, and Ray Serve would go by"
                " its own policy; leave policy out and set the scaling block, or add"
                " policy_function: 'module:name'"
            ]
        )
    return block


def names_function(policy: Any) -> bool:
    """Whether a ``policy`` names a function; else Ray Serve's default decides.

    Ray's own object fills in its default: an object names none.
    """
    if isinstance(policy, Mapping):
        return bool(policy.get("policy_function"))
    is_default = getattr(policy, "is_default_policy_function", None)
    return is_default is not None and not is_default()
