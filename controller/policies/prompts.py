"""Prompts that wait, and what of them a step begins."""

import numpy as np
from numpy.typing import NDArray

from controller.models.requests import Ints, Requests
from controller.policies.base import Batch

Bools = NDArray[np.bool_]

# A prompt is long where it would take so many chunks to itself, and gets one in so many of each.
LONG_CHUNKS = 4
ONCE = 64  # as many may start in one step: more would not get a chunk of it


def starting(waiting: Requests, free: int, longest: int) -> Requests:
    """Those of the queue whose prompt begins within the next ``free`` prompt tokens."""
    if len(waiting) < 2:  # its prompt begins where the tokens do
        return waiting if free > 0 else waiting.first(0)
    each = np.minimum(waiting.tokens - waiting.computed, longest)
    return waiting.first(int((np.cumsum(each) - each < free).sum()))


def taken(prompts: Ints, longest: int) -> int:
    """Tokens that a step takes of these prompts, no more than so many of each."""
    return int(np.minimum(prompts, longest).sum()) if len(prompts) else 0


def to_boundary(batch: Batch, prefilling: Bools, whole: int) -> int:
    """The least that gets the first prompt of the queue any further, in whole multiples."""
    queue, at = (batch.running, int(prefilling.argmax())) if prefilling.any() else (None, 0)
    if queue is None:
        queue = batch.waiting(1)
    if not len(queue):
        return whole
    computed = int(queue.computed[at])
    return min(whole - computed % whole, int(queue.tokens[at]) - computed)


def longest(batch: Batch, prompts: Ints, chunk: int, long: int, least: int) -> int:
    """What one prompt may take of the chunk, so that short ones get past long ones.

    Long ones get what short ones leave, each as much as the others, and at least ``least``.

    Args:
        prompts: tokens left of those that are half computed.
        long: tokens; a prompt that has more left is long.
    """
    are_long = prompts > long
    if not are_long.any():
        return min(chunk, long)
    waiting = batch.waiting(ONCE)
    coming = waiting.tokens - waiting.computed
    short = int(prompts[~are_long].sum()) + int(coming[coming <= long].sum())
    return min(max((chunk - short) // int(are_long.sum()), least, 1), long, chunk)
