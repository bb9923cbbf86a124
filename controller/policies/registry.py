"""The policies by name: their parts in the controller, and in the engine."""

from collections.abc import Callable

from controller.config import BatchingConfig
from controller.policies.adaptive import AdaptiveStep
from controller.policies.adaptive_fleet import AdaptivePolicy
from controller.policies.base import ApplyPushed, Policy, StepHalf
from controller.policies.paper import PaperPolicy
from controller.policies.static import StaticPolicy
from controller.records import EngineLimits

POLICIES: dict[str, Callable[[BatchingConfig], Policy]] = {
    "static": StaticPolicy,
    "paper": PaperPolicy,
    "adaptive": AdaptivePolicy,
}


def make_policy(config: BatchingConfig) -> Policy:
    """The part in the controller of the policy that ``config.policy`` names; its state is new."""
    return POLICIES[config.policy](config)


def make_step_half(
    config: BatchingConfig, engine: EngineLimits, *, by_class: bool = False
) -> StepHalf:
    """The part of the same in one engine.

    Args:
        by_class: requests bring SLOs with times between tokens that differ.

    Raises:
        ConfigError: the configured bounds do not fit the engine.
    """
    config.upper_bound(engine.max_num_seqs)  # refuses one that the engine cannot hold
    if config.policy == "adaptive":
        return AdaptiveStep(config, engine, by_class=by_class)
    return ApplyPushed(config, engine)
