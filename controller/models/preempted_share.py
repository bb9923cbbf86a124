"""theta: how many deviations of memory's forecast are kept free, by the preemptions that happen.

Where the share of preempted requests has an upper bound epsilon, theta moves up by ``STEP`` for a
preemption and down by epsilon ``STEP`` for each request that finished, so that in the long run that
share of them is preempted.
"""

START, STEP, RANGE = 1.0, 0.2, (0.0, 3.0)
COOL_STEPS = 8  # preemptions within as many steps of the engine have one cause, and count once


class Theta:
    """The deviations kept free.

    Args:
        epsilon: the share of requests that may be preempted, at most (epsilon_M of the paper).

    Attributes:
        value: theta.
    """

    def __init__(self, epsilon: float) -> None:
        self._epsilon = epsilon
        self._cool_until = 0  # step
        self.value = START

    def finished(self) -> None:
        """A request ended by itself."""
        self._move(-STEP * self._epsilon)

    def preempted(self, step: int) -> None:
        """A request lost its KV blocks: memory was overcommitted."""
        if step >= self._cool_until:
            self._cool_until = step + COOL_STEPS
            self._move(STEP)

    def _move(self, by: float) -> None:
        low, high = RANGE
        self.value = min(max(self.value + by, low), high)
