"""Requests that can still meet their TTFT go first; late ones step aside, but not for ever.

In overload, first come first served makes all requests wait until no time to first token can be
met. Serving those in time first keeps all but the overload inside the SLA.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from replicas.engine.moved import is_moved

NEWEST_WEIGHT = 0.05  # of a step in the prefill rate: the last 20 steps
# One prompt token in so many goes to the late request that has waited longest: late ones are served
# in the end, by 5% of the prefill rate at least. By tokens and not by starts, or a late prompt of
# 2,048 tokens among 20 starts of 257 takes two fifths more than came.
LATE_EVERY = 20


class Waiting(Protocol):
    """What is asked of a waiting request (vLLM's ``Request`` has it)."""

    request_id: str
    arrival_time: float
    num_computed_tokens: int

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_output_tokens(self) -> int: ...


class Demotions:
    """Judges whether requests can be in time, and counts prompt tokens between two late ones.

    Args:
        ttft_s: the SLA's time to first token.
        ttft_of: gives each request's own, by its id; None: it is ``ttft_s`` for all.
        stays: whether vLLM passes a request over and leaves it in this queue, so that those behind
            it are judged; None: this vLLM has another queue for them.
        cached: tokens of a prompt that the prefix cache holds; None: nothing is cached.

    Attributes:
        ttft_s: as given; infinite: none is late.
        now_s: the wall clock of the step that is scheduled.
        tokens: of prompts that have started since the last late one, prefix hits included.
    """

    def __init__(
        self,
        ttft_s: float,
        ttft_of: Callable[[str], float] | None = None,
        stays: Callable[[Any], bool] | None = None,
        cached: Callable[[Any], int] | None = None,
    ) -> None:
        self.ttft_s = ttft_s
        self.ttft_of = ttft_of
        self.stays = stays
        self._cached = cached
        self._tokens_per_s = 0.0
        self.now_s = 0.0
        self.tokens = 0

    def observe(self, prefill_tokens: int, duration_s: float, started_tokens: int) -> None:
        """A step is done, which computed so many prompt tokens, and in which such prompts began."""
        self.tokens += started_tokens
        if prefill_tokens and duration_s > 0:
            rate = prefill_tokens / duration_s
            known = self._tokens_per_s
            self._tokens_per_s = known + NEWEST_WEIGHT * (rate - known) if known else rate

    def late(self, request: Waiting) -> bool:
        """Whether the first token of one that waits comes too late, with all of its prompt.

        Of one that had its first token and lost its KV blocks or its engine since, it does not. One
        that holds KV memory (a session with its next input, KV that has come from elsewhere) is not
        kept waiting with it, late or not.
        """
        if request.num_output_tokens or request.num_computed_tokens or is_moved(request):
            return False
        ttft_s = self.ttft_s if self.ttft_of is None else self.ttft_of(request.request_id)
        left_s = request.arrival_time + ttft_s - self.now_s
        in_time = left_s * self._tokens_per_s if self._tokens_per_s else math.inf
        if left_s < 0 or request.num_tokens <= in_time:
            return left_s < 0
        return request.num_tokens - (self._cached(request) if self._cached else 0) > in_time


class Lane:
    """A queue in which those in time come before the late ones, each in the order they came.

    Time only makes requests late, so each moves once, when it has come to the front: a step costs
    what has changed, not what waits.
    """

    def __init__(self, aside: Demotions) -> None:
        self._aside = aside
        self._in_time: Any = deque()
        self._late: deque[Any] = deque()
        self._next_late: Any = None  # the late one put first, until it has started
        self._order: dict[Any, int] = {}  # of all that are here, if none was late
        self._first, self._last = 0, 0

    def add(self, request: Any) -> None:
        """One more has come."""
        self._last += 1
        self._order[request] = self._last
        self._in_time.append(request)

    def prepend(self, request: Any) -> None:
        """One that has run before comes back, and goes first."""
        self._order_first(request)
        self._in_time.appendleft(request)

    def add_late(self, requests: Iterable[Any]) -> None:
        """These have been seen to be late elsewhere, where they would have gone first."""
        for request in requests:
            self._order_first(request)
            self._late.append(request)

    def restore(self) -> None:
        """Late ones go back to where they would be if none had stepped aside."""
        if self._late or self._next_late is not None:
            in_order = sorted(self, key=self._order.__getitem__)
            self._late.clear()
            self._next_late = None
            self._keep(in_order)

    def reorder(self) -> None:
        """Before a step: late ones at the front step aside, and one of them may be put first."""
        stays, passed = self._aside.stays, []
        try:
            while self._in_time and self._in_time[0] is not self._next_late:
                if stays is not None and stays(self._in_time[0]):
                    passed.append(self._take())
                    continue
                if not self._aside.late(self._in_time[0]):
                    break
                self._late.append(self._take())
        finally:  # no error loses a request
            for request in reversed(passed):
                self._go_first(request)
        if self._next_late is None and self._late and self._turn_of(self._late[0]):
            self._next_late = self._late.popleft()
            self._go_first(self._next_late)

    def peek(self) -> Any:
        """The next one.

        Raises:
            IndexError: no request waits.
        """
        return self._in_time[0] if self._in_time else self._late[0]

    def pop(self) -> Any:
        """The next one, which leaves.

        Raises:
            IndexError: no request waits.
        """
        request = self._take() if self._in_time else self._late.popleft()
        self._forget([request])
        return request

    def discard(self, requests: Collection[Any]) -> None:
        """These leave, if they are here."""
        gone = set(requests)
        self._keep([r for r in self._in_time if r not in gone])
        self._late = deque(r for r in self._late if r not in gone)
        self._forget(gone)

    def __len__(self) -> int:
        return len(self._in_time) + len(self._late)

    def __iter__(self) -> Iterator[Any]:
        yield from self._in_time
        yield from self._late

    def _turn_of(self, request: Waiting) -> bool:
        return self._aside.tokens >= LATE_EVERY * request.num_tokens

    def _take(self) -> Any:
        return self._in_time.popleft()

    def _go_first(self, request: Any) -> None:
        self._in_time.appendleft(request)

    def _keep(self, requests: list[Any]) -> None:
        self._in_time = deque(requests)

    def _order_first(self, request: Any) -> None:
        self._first -= 1
        self._order[request] = self._first

    def _forget(self, gone: Collection[Any]) -> None:
        for request in gone:
            self._order.pop(request, None)
        if self._next_late is not None and self._next_late in gone:
            self._next_late, self._aside.tokens = None, 0


class SortedLane(Lane):
    """A lane whose requests come in any order and have one of their own (``<``)."""

    def __init__(self, aside: Demotions) -> None:
        super().__init__(aside)
        self._in_time = []  # a heap

    def add(self, request: Any) -> None:
        self._order[request] = 0  # its own order says where it stands
        heapq.heappush(self._in_time, request)

    prepend = add

    def __iter__(self) -> Iterator[Any]:
        heap = self._in_time.copy()
        while heap:
            yield heapq.heappop(heap)
        yield from self._late

    def _take(self) -> Any:
        return heapq.heappop(self._in_time)

    def _go_first(self, request: Any) -> None:
        # It came before those that are in time, unless their prompts are shorter.
        heapq.heappush(self._in_time, request)

    def _keep(self, requests: list[Any]) -> None:
        self._in_time = requests
        heapq.heapify(self._in_time)
