"""The role of an engine that can prefill and decode; it changes while the engine serves.

A role is a batching block (``controller.roles``), so a change restarts, moves and recomputes
nothing. A new prefill engine keeps its ITL until its last decode has ended, or until as many
prompts, for others or received before, wait as requests run. A new decode engine has its ITL at
once.
"""

from collections.abc import Collection, Iterable

from vllm.v1.request import Request

from controller.config import BatchingConfig
from controller.records import Role
from controller.roles import as_prefill, keeps_itl
from replicas.engine.request_facts import more_tokens_follow, remotely_decoded
from replicas.engine.start_order import passed_over


class LiveRole:
    """The role of one engine.

    Args:
        batching: the configured block, for an engine without a role.

    Attributes:
        wanted: the role that the controller asked for last; None: none.
        held: the present role.
    """

    def __init__(self, batching: BatchingConfig) -> None:
        self.batching = batching
        self.wanted: Role | None = None
        self.held: Role | None = None
        self._before: frozenset[str] | None = None  # ids of requests here at that time

    def for_another(self, request: Request) -> bool:
        """Whether another engine of the group answers the request and counts it."""
        return self.batching.roles is not None and remotely_decoded(request)

    def settle(
        self, requests: Collection[Request], running: int, waiting: Iterable[Request]
    ) -> BatchingConfig:
        """The block that holds now.

        Args:
            requests: all of the engine's; some have ended, and a connector reads their blocks.
            running: their number.
            waiting: the requests in its queues.
        """
        without, self.held = self.held == "prefill", self.wanted
        if self.wanted != "prefill":
            self._before = None
        else:
            if self._before is None:
                self._before = frozenset(one.request_id for one in requests)
            decodes = any(map(_is_answered_here, requests))
            prompts = sum(map(self._counts, waiting))
            if keeps_itl(running, prompts, decodes=decodes, without=without):
                self.held = "mixed"
        return as_prefill(self.batching) if self.held == "prefill" else self.batching

    def _counts(self, request: Request) -> bool:
        """Whether the ITL may be given up for a waiting request.

        Not if its KV is loaded or something of its own is missing: that would be in vain. Requests
        that come later to be answered here keep the ITL, as no other engine can decode.
        """
        assert self._before is not None
        known = remotely_decoded(request) or request.request_id in self._before
        return known and not passed_over(request)


def _is_answered_here(request: Request) -> bool:
    """Whether it decodes here now; a session may wait for its next input for hours."""
    return more_tokens_follow(request) and not remotely_decoded(request)
