"""The role of an engine that can do both: it takes one, and leaves one, while it serves.

A role is a batching block (``controller.roles``), so a change restarts, moves and recomputes
nothing. One that is to compute prompts for others keeps its time between tokens until its last
decode has ended or as many of these prompts, and of its own, wait as requests run; one that is to
decode again does so at once.
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
        batching: the block that is configured, for an engine in no role.

    Attributes:
        wanted: what the controller said last; None: it says nothing of roles.
        held: that the engine is in.
    """

    def __init__(self, batching: BatchingConfig) -> None:
        self.batching = batching
        self.wanted: Role | None = None
        self.held: Role | None = None
        self._before: frozenset[str] | None = None  # ids of those here when it was to prefill

    def for_another(self, request: Request) -> bool:
        """Whether another engine of the group answers it, which counts it as its own."""
        return self.batching.roles is not None and remotely_decoded(request)

    def settle(
        self, requests: Collection[Request], running: int, waiting: Iterable[Request]
    ) -> BatchingConfig:
        """The block to go by now.

        Args:
            requests: those that the engine knows; with some that have ended, while a connector
                reads their blocks.
            running: how many.
            waiting: those in its queues.
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
        """Whether an ITL may be given up for a request that waits.

        It would be in vain for a request whose KV is loaded or that waits for something of its own.
        Requests that come to be answered here later keep the ITL, as no other engine is left.
        """
        assert self._before is not None
        known = remotely_decoded(request) or request.request_id in self._before
        return known and not passed_over(request)


def _is_answered_here(request: Request) -> bool:
    """Now: a session that waits for its client's next input may do so for hours."""
    return more_tokens_follow(request) and not remotely_decoded(request)
