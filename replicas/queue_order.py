"""Who can still meet its TTFT goes first; who cannot any more steps aside, but not for ever.

In overload, first come first served makes everybody wait until nobody's time to first token can be
met. Serving those in time first keeps all but the overload inside the SLA.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol

SPREAD = 0.05  # weight of the newest step in the prefill rate: the last 20 steps
# One start in so many goes to the one that has waited longest, whatever its chances: whoever steps
# aside is served in the end, at 5% of the rate at least.
TURN = 20
SCANNED = 2048  # of the queue, at most, in one step


class Waiting(Protocol):
    """What is asked of a waiting request (vLLM's ``Request`` has it)."""

    arrival_time: float
    num_computed_tokens: int

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_output_tokens(self) -> int: ...


class StepAside:
    """Reorders a first-come-first-served queue by whether its requests can be in time.

    Args:
        ttft_s: the SLA's time to first token.
    """

    def __init__(self, ttft_s: float) -> None:
        self._ttft_s = ttft_s
        self._tokens_per_s = 0.0
        self._starts = 0
        self._favoured: Waiting | None = None  # whose turn it is, until it has started

    def observe(self, prefill_tokens: int, duration_s: float, starts: int) -> None:
        """A step is done, which computed so many prompt tokens and in which so many started."""
        self._starts += starts
        if prefill_tokens and duration_s > 0:
            rate = prefill_tokens / duration_s
            known = self._tokens_per_s
            self._tokens_per_s = known + SPREAD * (rate - known) if known else rate

    def reorder(self, queue: "deque[Waiting]", now_s: float) -> None:
        """Move those at the front that are too late behind those that are not."""
        first = queue[0] if queue else None
        if self._favoured is not None and self._favoured is not first:
            self._favoured, self._starts = None, 0
        if first is None or not self._late(first, now_s):
            return
        if self._starts >= TURN:
            self._favoured = first  # for as long as it takes: this step may have no room
            return
        late = self._leading_late(queue, now_s)
        if late < min(len(queue), SCANNED):
            queue.rotate(-late)

    def _leading_late(self, queue: "Iterable[Waiting]", now_s: float) -> int:
        for index, request in enumerate(queue):
            if index == SCANNED or not self._late(request, now_s):
                return index
        return SCANNED

    def _late(self, request: Waiting, now_s: float) -> bool:
        if request.num_output_tokens:  # it has its first token, and lost its KV blocks since
            return False
        prefill_s = 0.0
        if self._tokens_per_s:
            prefill_s = (request.num_tokens - request.num_computed_tokens) / self._tokens_per_s
        return now_s + prefill_s > request.arrival_time + self._ttft_s
