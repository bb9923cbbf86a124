"""The policies by name: one line each."""

from collections.abc import Callable

from controller.config import BatchingConfig
from controller.policies.base import Policy
from controller.policies.paper import PaperPolicy
from controller.policies.static import StaticPolicy

POLICIES: dict[str, Callable[[BatchingConfig], Policy]] = {
    "static": StaticPolicy,
    "paper": PaperPolicy,
}


def make_policy(config: BatchingConfig) -> Policy:
    """The policy that ``config.policy`` names, with its own fresh state."""
    return POLICIES[config.policy](config)
