"""Prompts that wait, and what of them a step begins."""

from dataclasses import dataclass

import numpy as np

from controller.config import Sla
from controller.models.arrays import Bools, Ints
from controller.models.requests import Requests
from controller.policies.base import Batch
from controller.records import EngineLimits

# A prompt is long where it would take so many chunks to itself, and gets one in so many of each.
LONG_CHUNKS = 4
# With a TTFT it is long where it takes more chunks than the TTFT has time for, or than these.
MOST_CHUNKS = 40
MAX_STARTS = 64  # as many of the queue are looked at first: more seldom get a chunk of the step
FEW_STARTS = (
    8  # ... beside a long prompt: what shares a prefix with the queue takes time to look up
)


def starting(waiting: Requests, free: int, longest: int) -> Requests:
    """Those of the queue whose prompt begins within the next ``free`` prompt tokens."""
    if len(waiting) < 2:  # its prompt begins where the tokens do
        return waiting if free > 0 else waiting.first(0)
    each = np.minimum(waiting.tokens - waiting.computed, longest)
    return waiting.first(int(np.count_nonzero(each.cumsum() - each < free)))


def taken(prompts: Ints, longest: int) -> int:
    """Tokens that a step takes of these prompts, no more than so many of each."""
    return int(np.add.reduce(np.minimum(prompts, longest))) if len(prompts) else 0


def to_boundary(batch: Batch, prefilling: Bools, whole: int) -> int:
    """The least that gets the first prompt of the queue any further, in whole multiples."""
    queue, at = (batch.running, int(prefilling.argmax())) if prefilling.any() else (None, 0)
    if queue is None:
        queue = batch.waiting(1)
    if not len(queue):
        return whole
    computed = int(queue.computed[at])
    return min(whole - computed % whole, int(queue.tokens[at]) - computed)


@dataclass(slots=True)  # not frozen, for the time of a step (``Requests``)
class PrefillSplit:
    """The prompt tokens of a step among those in prefill, so that short ones get past long ones.

    Of no prompt more is computed than of any other that has as much left: vLLM knows one bound for
    all. It is as high as fills the chunk, with those that start.

    Args:
        prompts: tokens left of those that are half computed.
        chunk: tokens for all of them.
        most: of one prompt.
        long: tokens; a prompt that has more left is long.
        share: what a long one has of the chunk at least; ``most`` where none is long.
    """

    prompts: Ints
    chunk: int
    most: int
    long: int
    share: int

    @property
    def shares(self) -> bool:
        """Whether others may start beside long ones that would take all."""
        return self.share < self.most

    def starting(self, queue: Requests) -> Requests:
        """Those of the queue that begin in this step.

        First, prompts that fit in the chunk left over by half-computed ones. If long prompts are
        held to their shares, also everything up to the last short prompt that then fits.
        """
        all_for_them = self.chunk - taken(self.prompts, self.most)
        first = len(starting(queue, all_for_them, self.most)) if all_for_them > 0 else 0
        if not self.shares:
            return queue.first(first)
        more = starting(queue, self.chunk - taken(self.prompts, self.share), self.share)
        short = np.flatnonzero(more.tokens - more.computed <= self.long)
        return queue.first(max(first, int(short[-1]) + 1 if len(short) else 0))

    def of_one(self, newcomers: Requests) -> int:
        """What one prompt may take, where these start: ``share`` at least, ``most`` at most."""
        each = np.sort(np.concatenate([self.prompts, newcomers.tokens - newcomers.computed]))
        smaller = np.cumsum(each) - each  # tokens of those before
        larger = len(each) - np.arange(len(each))
        full = np.flatnonzero(smaller + each * larger >= self.chunk)
        if not len(full):
            return self.most
        level = (self.chunk - int(smaller[full[0]])) // int(larger[full[0]])
        return min(max(level, self.share), self.most)


def long_chunks(sla: Sla) -> int | None:
    """A prompt is long that takes more chunks than this to itself; None: none is.

    Where a time to first token is agreed none is long that can be in time: side by side all of
    them would be late, where one after the other most are not. Beyond ``MOST_CHUNKS`` a prompt is
    long all the same: several of those in a row make short ones late behind them.
    """
    # Under paced delivery and by class who goes first is a matter of what is due when.
    if sla.itl_ms is None or sla.delivery != "gaps":
        return None
    in_time = int(min((sla.ttft_ms or 0.0) / sla.itl_ms, MOST_CHUNKS))
    return max(LONG_CHUNKS, in_time)


def divided(prompts: Ints, chunk: int, engine: EngineLimits, chunks: int | None) -> PrefillSplit:
    """How a chunk is divided in an engine.

    A threshold of vLLM's says which prompts are long, and which share of a step one of them has.

    Args:
        prompts: tokens left of those that are half computed.
        chunks: without such a threshold a prompt is long that takes more of them than this, and
            one is shared by ``LONG_CHUNKS``; None: no prompt is.
    """
    threshold, most = engine.long_prompt_tokens, chunk
    if threshold:
        long, most = threshold, min(chunk, threshold)
        share = chunk * threshold // engine.max_num_batched_tokens
    else:
        long, share = (chunks or 0) * chunk, chunk // LONG_CHUNKS
    n = int(np.count_nonzero(prompts > long)) if threshold or chunks else 0
    if not n:
        return PrefillSplit(prompts, chunk, most, long, most)
    # Several long ones have less each, so that something is left for others.
    share = max(min(share, chunk // (n + 1)), engine.block_tokens)
    return PrefillSplit(prompts, chunk, most, long, min(share, most))
