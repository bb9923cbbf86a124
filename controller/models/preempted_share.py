"""The margin: how many deviations of memory's forecast are kept free, by preemptions that happen.

Where the share of preempted requests has an upper bound epsilon, the margin moves up by ``STEP``
for the preemptions within ``COOL_STEPS``, which count once, and down by epsilon ``STEP`` for each
request that finished: in the long run that share of them is preempted. Where the bound comes from
an SLA on gaps between tokens, a long answer counts as several requests (``worth_of``): a preemption
makes one gap late, and it has many.
"""

START, STEP, RANGE = 1.0, 0.2, (0.0, 3.0)
# Of the gaps that an SLA lets be late a tenth may be for preemptions, the others for long steps.
TOKENS_EACH = 10
COOL_STEPS = 8  # preemptions within as many steps of the engine have one cause, and count once


class MemoryMargin:
    """The deviations kept free.

    Args:
        epsilon: the share of requests that may be preempted, at most (epsilon_M of the paper).

    Attributes:
        value: how many.
    """

    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon
        self._cool_until = 0  # step
        self.value = START

    def finished(self, worth: float) -> None:
        """A request ended by itself; it counts as ``worth`` of them."""
        self._move(-STEP * self._epsilon * worth)

    def preempted(self, step: int) -> None:
        """A request lost its KV blocks: memory was overcommitted."""
        if step >= self._cool_until:
            self._cool_until = step + COOL_STEPS
            self._move(STEP)

    def _move(self, by: float) -> None:
        low, high = RANGE
        self.value = min(max(self.value + by, low), high)


def worth_of(output_tokens: int) -> float:
    """As how many requests an answer counts where the bound is a share of gaps.

    With epsilon = 1 - p, preemptions make at most epsilon / ``TOKENS_EACH`` of all gaps late. Of
    answers under ``TOKENS_EACH`` tokens, at most a share epsilon is preempted.
    """
    return max(1.0, output_tokens / TOKENS_EACH)
