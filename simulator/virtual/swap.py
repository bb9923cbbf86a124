"""KV of preempted requests in host memory, loaded if that is faster than computing it again.

As in vLLM's offloading connector, copies to host memory run during steps. A load delays the step
that needs it and is never hidden, so the gain is a lower bound of such a connector's.
"""

from collections.abc import Callable
from typing import Any

from controller.roles import Transfer
from replicas.profiles.profile import StepProfile
from simulator.virtual.transfer import VirtualConnector


class SwapConnector(VirtualConnector):
    """The scheduler's part.

    Attributes:
        cached: tokens whose KV is in host memory, by request id.
        pays: whether loading this many tokens is faster than computing them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cached: dict[str, int] = {}
        self.pays: Callable[[int], bool] = lambda tokens: True

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        cached = min(self.cached.get(request.request_id, 0), request.num_tokens - 1)
        there = max(cached - num_computed_tokens, 0)
        return there if there and self.pays(there) else 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            self.begun.append((request.request_id, num_external_tokens))

    def request_finished(self, request: Any, block_ids: Any) -> Any:
        self.cached.pop(request.request_id, None)
        return False, None


def sooner(link: Transfer, profile: StepProfile) -> Callable[[int], bool]:
    """Whether the link brings tokens sooner than a step computes them again."""

    def pays(tokens: int) -> bool:
        step_s = profile.cost.step_s
        computed_s = step_s(1, tokens, tokens, tokens**2 / 2) - step_s(1, tokens, 0, 0)
        return link.time_s(tokens) < computed_s

    return pays
