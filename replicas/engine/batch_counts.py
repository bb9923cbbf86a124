"""Counts of decoding requests, of the KV tokens they attend to, and of prompts in prefill.

The counts are taken anew from each ``SchedulerOutput`` and corrected for requests that end before
the next. So an error lasts one step, as when vLLM takes back rejected drafts or lost blocks.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from vllm.v1.request import Request

from replicas.engine.intervals import Scheduled


class BatchCounts:
    """Counts the running requests of one engine by what the next step does for them.

    Attributes:
        prefilling: running requests whose prompt is not computed yet, in the order they started.
        kv_tokens: KV tokens that decoding requests attend to.
    """

    def __init__(self) -> None:
        self.prefilling: list[Request] = []
        self.kv_tokens = 0

    def scheduled(
        self, step: Scheduled, requests: Mapping[str, Request], skipped: Iterable[Request] = ()
    ) -> None:
        """Count a scheduled step, whose tokens vLLM counts as computed.

        Args:
            requests: all requests of the engine, by id.
            skipped: decodes that are not in the step.
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
        """Remove a request that ended, lost its KV blocks, or is a session with a new input."""
        if request in self.prefilling:
            self.prefilling.remove(request)
        else:
            self.kv_tokens = max(self.kv_tokens - request.num_computed_tokens, 0)

    def prompts(self) -> list[tuple[int, int]]:
        """Tokens left and tokens computed of each prompt in prefill."""
        return [
            (r.num_tokens - r.num_computed_tokens, r.num_computed_tokens) for r in self.prefilling
        ]


def decodes_first(running: list[Any], prefilling: list[Any]) -> list[Any] | None:
    """Put decodes before requests in prefill for one step; both keep their order.

    vLLM serves running requests in order: a long prompt takes the rest of the step's tokens, and
    decodes after it get none.

    Args:
        running: vLLM's list.
        prefilling: its requests in prefill.

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
    """Restore the order of ``before`` once a step is scheduled; requests that started come last.

    vLLM preempts the last of its list. In the moved order that is a long prompt, the costliest
    to recompute.
    """
    if before is None:
        return
    here, known = set(running), set(before)
    running[:] = [r for r in before if r in here] + [r for r in running if r not in known]
