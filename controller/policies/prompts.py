"""Prompts that wait, and what of them a step begins."""

import numpy as np
from numpy.typing import NDArray

from controller.models.requests import Ints, Requests
from controller.policies.base import Batch

Bools = NDArray[np.bool_]


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
