"""The margin: the share of KV memory that is kept free, moved by the preemptions that happen.

With an upper bound epsilon on the share of requests that are preempted, the margin moves up by
``STEP`` for the preemptions of a period, which count twice at most, and down by epsilon ``STEP``
for each request that finished: in the long run that share of them is preempted. Below 0 more is
started than the forecast says memory holds: equal answers that started together would else end
together for ever, and fill half of it. If the bound comes from an SLA on gaps between tokens, a
long answer counts as several requests (``worth_of``): a preemption makes one gap late, and it has
many.
"""

START, STEP, RANGE = 0.05, 0.01, (-0.5, 0.3)
# If requests have priorities it begins with more and moves faster: who fills memory lets those
# that matter wait.
PRIORITY_START, PRIORITY_STEP, PRIORITY_SHARE = 0.1, 0.02, 0.005
# Of the gaps that an SLA lets be late a tenth may be for preemptions, the others for long steps.
TOKENS_EACH = 10
MOST_CAUSES = 2  # of the preemptions of one period: many at once have one cause


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
        """A request ended by itself; it counts as ``worth`` of them."""
        self._move(-self._step * self._epsilon * worth)

    def preempted(self, requests: int) -> None:
        """So many requests lost their KV blocks in a period: memory was overcommitted."""
        self._move(self._step * min(requests, MOST_CAUSES))

    def _move(self, by: float) -> None:
        low, high = RANGE
        self.value = min(max(self.value + by, low), high)


def worth_of(output_tokens: int) -> float:
    """As how many requests an answer counts if the bound is a share of gaps.

    With epsilon = 1 - p, preemptions make at most epsilon / ``TOKENS_EACH`` of all gaps late. Of
    answers under ``TOKENS_EACH`` tokens, at most a share epsilon is preempted.
    """
    return max(1.0, output_tokens / TOKENS_EACH)
