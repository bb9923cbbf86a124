"""The margin: the share of KV memory that is kept free, moved by the preemptions that happen.

epsilon is the share of requests that may be preempted. Each preemption moves the margin up by
``STEP`` (at most two of one period count), each finished request moves it down by epsilon ``STEP``.
In the long run the share epsilon is preempted. A margin below 0 starts more requests than memory
holds by the forecast: without it, equal answers that started together would always end together and
fill half of memory. If the bound comes from an SLA on gaps between tokens, a long answer counts as
several requests (``worth_of``), because a preemption makes one of its many gaps late.
"""

START, STEP, RANGE = 0.05, 0.01, (-0.5, 0.3)
# With priorities the margin starts higher and moves faster: if memory is full, requests of high
# priority wait.
PRIORITY_START, PRIORITY_STEP, PRIORITY_SHARE = 0.1, 0.02, 0.005
TOKENS_EACH = 10  # preemptions may cause a tenth of the late gaps, long steps the others
MOST_CAUSES = 2  # preemptions of one period that count: many at once have one cause


class MemoryMargin:
    """The share of memory that is kept free.

    Args:
        epsilon: the share of requests that may be preempted, at most (epsilon_M of the paper).
        by_priority: whether requests have priorities.

    Attributes:
        value: the share.
    """

    def __init__(self, epsilon: float, *, by_priority: bool = False) -> None:
        self._epsilon = epsilon
        self._step = PRIORITY_STEP if by_priority else STEP
        self.value = PRIORITY_START if by_priority else START

    def finished(self, worth: float) -> None:
        """A request ended by itself; it counts as ``worth`` requests."""
        self._move(-self._step * self._epsilon * worth)

    def preempted(self, requests: int) -> None:
        """``requests`` lost their KV blocks in a period: memory was overcommitted."""
        self._move(self._step * min(requests, MOST_CAUSES))

    def _move(self, by: float) -> None:
        low, high = RANGE
        self.value = min(max(self.value + by, low), high)


def worth_of(output_tokens: int) -> float:
    """The number of requests that an answer counts as if the bound is a share of gaps.

    With epsilon = 1 - p, preemptions make at most epsilon / ``TOKENS_EACH`` of all gaps late. Of
    answers under ``TOKENS_EACH`` tokens, at most a share epsilon is preempted.
    """
    return max(1.0, output_tokens / TOKENS_EACH)
