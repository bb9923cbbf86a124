"""Requests that can still meet their TTFT go first; late ones are deprioritized, not starved.

In overload, first come first served makes every request late. Serving those in time first keeps
all but the overload within the SLA.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

from replicas.engine.moved import is_moved

NEWEST_WEIGHT = 0.05  # weight of a step in the prefill rate: the last 20 steps
# One prompt token in LATE_EVERY goes to the late request that has waited longest, so late ones get
# at least 5% of the prefill rate. Tokens are counted, not starts: one late prompt of 2,048 tokens
# after 20 starts of 257 would add two fifths to the prompt tokens.
LATE_EVERY = 20


class Waiting(Protocol):
    """The part of vLLM's ``Request`` used here."""

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
        ttft_of: gives the TTFT of a request, by its id; None: ``ttft_s`` for all.
        stays: whether vLLM passes a request over and leaves it in this queue; then the requests
            behind it are judged as well. None: this vLLM has another queue for them.
        cached: tokens of a prompt that the prefix cache holds; None: nothing is cached.

    Attributes:
        ttft_s: as given; infinite: none is late.
        now_s: wall clock of the present step.
        tokens: prompt tokens started since the last late request, prefix hits included.
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
        """Count a finished step: its prompt tokens, and the tokens of prompts that began in it."""
        self.tokens += started_tokens
        if prefill_tokens and duration_s > 0:
            rate = prefill_tokens / duration_s
            known = self._tokens_per_s
            self._tokens_per_s = known + NEWEST_WEIGHT * (rate - known) if known else rate

    def late(self, request: Waiting) -> bool:
        """Whether the first token of a waiting request will be late, after all of its prompt.

        False if it had its first token before it lost its KV blocks or its engine. Also false if it
        holds KV memory (a session with new input, KV from elsewhere), which it would keep longer.
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
    """A queue in which requests in time precede late ones, each in order of arrival.

    Requests only become late with time, so each moves once, when it is at the front: a step costs
    what has changed, not what waits.
    """

    def __init__(self, aside: Demotions) -> None:
        self._aside = aside
        self._in_time: Any = deque()
        self._late: deque[Any] = deque()
        self._next_late: Any = None  # the late request put first, until it starts
        self._order: dict[Any, int] = {}  # positions as if none were late
        self._first, self._last = 0, 0

    def add(self, request: Any) -> None:
        """Append a request."""
        self._last += 1
        self._order[request] = self._last
        self._in_time.append(request)

    def prepend(self, request: Any) -> None:
        """Put a request first that ran before."""
        self._order_first(request)
        self._in_time.appendleft(request)

    def add_late(self, requests: Iterable[Any]) -> None:
        """Add requests found late elsewhere, where they would have gone first."""
        for request in requests:
            self._order_first(request)
            self._late.append(request)

    def restore(self) -> None:
        """Put late requests back where they would be without deprioritization."""
        if self._late or self._next_late is not None:
            in_order = sorted(self, key=self._order.__getitem__)
            self._late.clear()
            self._next_late = None
            self._keep(in_order)

    def reorder(self) -> None:
        """Before a step: move late requests back from the front; one of them may be put first."""
        stays, passed = self._aside.stays, []
        try:
            while self._in_time and self._in_time[0] is not self._next_late:
                if stays is not None and stays(self._in_time[0]):
                    passed.append(self._take())
                    continue
                if not self._aside.late(self._in_time[0]):
                    break
                self._late.append(self._take())
        finally:  # an error loses no request
            for request in reversed(passed):
                self._go_first(request)
        if self._next_late is None and self._late and self._turn_of(self._late[0]):
            self._next_late = self._late.popleft()
            self._go_first(self._next_late)

    def peek(self) -> Any:
        """The next request.

        Raises:
            IndexError: no request waits.
        """
        return self._in_time[0] if self._in_time else self._late[0]

    def pop(self) -> Any:
        """Remove and return the next request.

        Raises:
            IndexError: no request waits.
        """
        request = self._take() if self._in_time else self._late.popleft()
        self._forget([request])
        return request

    def discard(self, requests: Collection[Any]) -> None:
        """Remove these requests, if they are here."""
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
    """A lane whose requests arrive in any order and are sorted by ``<``."""

    def __init__(self, aside: Demotions) -> None:
        super().__init__(aside)
        self._in_time = []  # a heap

    def add(self, request: Any) -> None:
        self._order[request] = 0  # ``<`` defines its position
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
        # It precedes those in time, unless they arrived before it with shorter prompts.
        heapq.heappush(self._in_time, request)

    def _keep(self, requests: list[Any]) -> None:
        self._in_time = requests
        heapq.heapify(self._in_time)
