"""How many requests decode, what they attend to, and which are in prefill: from step to step.

Counted anew from each ``SchedulerOutput``, and corrected for requests that end between two. So an
error lasts one step: vLLM takes tokens back if drafts are rejected or blocks are lost.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from vllm.v1.request import Request

from replicas.engine.intervals import Scheduled


class BatchCounts:
    """Counts the running requests of one engine by what the next step does for them.

    Attributes:
        prefilling: running requests whose prompt is not computed yet, in the order they started.
        kv_tokens: KV tokens that the others attend to.
    """

    def __init__(self) -> None:
        self.prefilling: list[Request] = []
        self.kv_tokens = 0

    def scheduled(
        self, step: Scheduled, requests: Mapping[str, Request], skipped: Iterable[Request] = ()
    ) -> None:
        """A step is scheduled: vLLM counts its tokens as computed.

        Args:
            requests: those that the engine knows, by id.
            skipped: decodes that the step leaves out.
        """
        kv = step.sample.kv_tokens + step.sample.decodes
        kv += sum(r.num_computed_tokens for r in skipped)
        drafts = step.output.scheduled_spec_decode_tokens
        some = self.prefilling
        if some:
            some = [r for r in some if r.is_prefill_chunk and r.request_id in requests]
        for req_id in step.prefilled:
            request = requests[req_id]
            if not request.is_prefill_chunk:
                kv += request.num_computed_tokens - len(drafts.get(req_id, ()))
            elif request not in some:
                some = [*some, request]
        self.prefilling, self.kv_tokens = some, kv

    def leave(self, request: Request) -> None:
        """It ended, lost its KV blocks, or becomes another: a session with its next input."""
        if request in self.prefilling:
            self.prefilling.remove(request)
        else:
            self.kv_tokens = max(self.kv_tokens - request.num_computed_tokens, 0)

    def prompts(self) -> list[tuple[int, int]]:
        """Tokens left and tokens computed of those in prefill."""
        return [
            (r.num_tokens - r.num_computed_tokens, r.num_computed_tokens) for r in self.prefilling
        ]


def decodes_first(running: list[Any], prefilling: list[Any]) -> list[Any] | None:
    """Put those that decode before those in prefill, each in their order, for one step.

    vLLM serves the running ones in order: a long prompt takes all that is left of a step's tokens,
    and the decodes behind it get none.

    Args:
        running: vLLM's list.
        prefilling: those of it that are in prefill.

    Returns:
        The list as it was, for ``as_they_stood``; None if nothing was moved.
    """
    n = len(prefilling)
    if not n or running[-n:] == prefilling:
        return None
    late = set(prefilling)
    before = list(running)
    prompts = [r for r in running if r in late]
    if running[-len(prompts) :] == prompts:
        return None
    running[:] = [r for r in running if r not in late] + prompts
    return before


def as_they_stood(running: list[Any], before: list[Any] | None) -> None:
    """Once a step is scheduled, take the order of before it; requests that started come last.

    vLLM preempts the last of its list. Without this, long prompts would always be last, and they
    are the costliest to recompute.
    """
    if before is None:
        return
    here, known = set(running), set(before)
    running[:] = [r for r in before if r in here] + [r for r in running if r not in known]
