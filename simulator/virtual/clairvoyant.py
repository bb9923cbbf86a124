"""A scheduler that knows every output length and the true step time: the bench's upper mark.

Without an SLA it starts a request that would overflow memory later, if it runs for longer until
then than recomputing it takes. With one it never does: a preempted request is late.
"""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from replicas.profiles.profile import StepProfile
from simulator.virtual.scheduler import VirtualScheduler
from simulator.workloads.requests import Request

if TYPE_CHECKING:
    from vllm.v1.request import Request as EngineRequest

Ints = NDArray[np.int64]


class ClairvoyantScheduler(VirtualScheduler):
    """Admits requests in queue order that fit, or pay, in KV memory, and whose steps keep to D.

    Args:
        requests: the workload; request ids are its indices.
        profile: the true step time.
        itl_s: D; None: memory alone decides.
        preempts: whether it may where that pays; never under an SLA.
    """

    def __init__(
        self,
        *args: Any,
        requests: Sequence[Request],
        profile: StepProfile,
        itl_s: float | None,
        preempts: bool = True,
        **kwargs: Any,
    ) -> None:
        self._workload = requests
        self._profile = profile
        self._itl_s = itl_s
        self._preempts = preempts and itl_s is None
        super().__init__(*args, **kwargs)

    def _set_limits(self) -> None:
        super()._set_limits()
        running = len(self.running)
        budget = self.max_num_scheduled_tokens
        if self._itl_s is not None:
            budget = self.max_num_scheduled_tokens = min(budget, self._budget(self._itl_s))
        admitted = 0
        if self.waiting and running < self.cap and budget > running:
            admitted = self._admissible(min(self.cap - running, len(self.waiting)), budget)
        setattr(self, self._cap_name, max(running + admitted, 1))

    def _budget(self, itl_s: float) -> int:
        """Tokens of the longest step within D: every decode, and what prefill has room for."""
        decoding = [r for r in self.running if r.num_output_tokens]
        kv = sum(r.num_computed_tokens for r in decoding)
        first = next((r for r in self.running if not r.num_output_tokens), None)
        before = first.num_computed_tokens if first is not None else 0

        def within(chunk: int) -> bool:
            context = chunk * (before + chunk / 2)
            return self._profile.step_s(len(decoding), kv, chunk, context) <= itl_s

        low, high = 0, self.governor.engine.max_num_batched_tokens + 1 - len(decoding)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if within(middle) else (low, middle)
        # A prompt that no step has room for still has to begin.
        return len(decoding) + (low if decoding else max(low, self.block_size))

    def _admissible(self, room: int, budget: int) -> int:
        """How many of the queue's first ``room`` requests may start in this step."""
        free = budget - len(self.running)
        candidates: list[EngineRequest] = []
        for request in islice(self.waiting, room):
            if free <= 0:  # it could not start in this step anyway
                break
            candidates.append(request)
            free -= request.num_tokens
        low, high = 0, 1
        while high <= len(candidates) and self._fits(candidates[:high], budget):
            low, high = high, high * 2
        high = min(high, len(candidates) + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(candidates[:middle], budget) else (low, middle)
        if not low and not self.running:
            return 1  # by itself it fits, or it would not have been let in
        return low

    def _fits(self, more: "list[EngineRequest]", budget: int) -> bool:
        together = [*self.running, *more]
        held = np.array([r.num_tokens for r in together])
        todo = np.array(
            [
                self._workload[int(r.request_id)].output_tokens - r.num_output_tokens
                for r in together
            ]
        )
        prefill = np.array([max(r.num_tokens - r.num_computed_tokens, 0) for r in together])
        decodes = int((prefill <= 1).sum())
        # Prompts are computed one after the other, a step's room each time.
        chunk = max(budget - decodes, self.block_size)
        first = np.maximum(-(-np.cumsum(np.where(prefill > 1, prefill, 0)) // chunk) - 1, 0)
        first = np.where(prefill > 1, first, 0)
        last = first + todo - 1
        peak_blocks, batch, kv = peak(held, first, last, self.block_size)
        if peak_blocks > self._kv_blocks:
            if not self._preempts:
                return False
            steps = first_overflow(held, first, last, self._kv_blocks, self.block_size)
            runs = steps - int(first[-1])
            loss = self._price(len(together)) * (int(held[-1]) + max(runs, 0))
            if runs <= loss:
                return False
            # It waits, if in fewer steps than that it could start and stay.
            later = np.zeros_like(first)
            later[-1] = int(loss)
            stays, *_ = peak(held, first + later, last + later, self.block_size)
            return stays > self._kv_blocks
        return self._itl_s is None or self._profile.step_s(batch, kv, 0, 0) <= self._itl_s

    def _price(self, batch: int) -> float:
        """r = c3 B / c0: steps of one slot that recomputing a token is worth."""
        chunk = 512
        alone_s = self._profile.step_s(1, 0, 0, 0)
        more_s = self._profile.step_s(1, 0, chunk, chunk * chunk / 2) - alone_s
        return more_s / chunk * batch / alone_s


def first_overflow(held: Ints, first: Ints, last: Ints, kv_blocks: int, block_size: int) -> int:
    """The step in which these requests fill memory, if none is added.

    Where some have yet to begin, those count as growing all along, which may make it too late.

    Args:
        held, first, last, block_size: as in ``peak``.
        kv_blocks: what memory holds; at some time they hold more.
    """
    ends = np.unique(last)
    alive = ends[:, None] <= last
    tokens = np.where(alive, held + np.maximum(ends[:, None] - first, 0), 0)
    excess = (-(-tokens // block_size)).sum(axis=1) - kv_blocks
    over = int((excess > 0).argmax())
    # Up to this end, each that has started holds a token more with every step.
    growing = int((alive[over] & (first < ends[over])).sum())
    begun = int(ends[over - 1]) if over else 0
    steps = int(excess[over]) * block_size // max(growing, 1)
    return max(int(ends[over]) - steps, begun)


def peak(held: Ints, first: Ints, last: Ints, block_size: int) -> tuple[int, int, int]:
    """The most KV blocks that these requests will hold together, if none is added.

    Args:
        held: tokens each holds until its step ``first``, in which it has its next token; one more
            with each step from there to ``last``, after which it is gone.

    Returns:
        Blocks at the peak; the largest batch; KV tokens at the peak.
    """
    # What is held only grows between two ends, so the peak is at one of them.
    at = np.unique(last)[:, None]
    alive = at <= last
    tokens = np.where(alive, held + np.maximum(at - first, 0), 0)
    blocks = (-(-tokens // block_size)).sum(axis=1)
    top = int(blocks.argmax())
    return int(blocks[top]), len(held), int(tokens[top].sum())
