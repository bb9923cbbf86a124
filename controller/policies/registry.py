"""The policies by name: one line each."""

from collections.abc import Callable

from controller.config import BatchingConfig
from controller.policies.adaptive import AdaptivePolicy, AdaptiveStep
from controller.policies.base import ApplyPushed, Policy, StepHalf
from controller.policies.paper import PaperPolicy
from controller.policies.static import StaticPolicy
from controller.records import EngineLimits

POLICIES: dict[str, Callable[[BatchingConfig], Policy]] = {
    "static": StaticPolicy,
    "paper": PaperPolicy,
    "adaptive": AdaptivePolicy,
}
STEP_HALVES: dict[str, Callable[[BatchingConfig, EngineLimits], StepHalf]] = {
    "static": ApplyPushed,
    "paper": ApplyPushed,
    "adaptive": AdaptiveStep,
}


def make_policy(config: BatchingConfig) -> Policy:
    """The fleet half of the policy that ``config.policy`` names, with its own fresh state."""
    return POLICIES[config.policy](config)


def make_step_half(config: BatchingConfig, engine: EngineLimits) -> StepHalf:
    """The step half of the same, for one engine.

    Raises:
        ConfigError: the configured bounds do not fit the engine.
    """
    return STEP_HALVES[config.policy](config, engine)
