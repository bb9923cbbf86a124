"""Paced delivery: how long a step may be where tokens are due at a steady pace.

Token i of a request, counted from 0, is due at t0 + i D with t0 = max(arrival + TTFT, first token).
Its slack is the time by which its last token came before it was due. A step of D + x costs every
request that decodes x of its slack (x below 0 adds to it), and a request with none left is late.
x is the least slack less a margin, halved where that is above 0, and no less than -D / 2; or, while
tokens may be late, the allowance if that is more.

Whose slack counts: the percentile lets some tokens be late, and a request that has fallen behind is
late with all that it still has to generate, E[output - a | output > a] tokens at an age of a. So
there is a budget of late tokens (``ErrorBudget``), and in the order of their slack as many
requests as it covers, with all that they still have to generate, are left out. So is a request more
than D / 2 behind: no short step makes that good.

The allowance is TTFT / (2 n) beyond D: half of the TTFT lasts a request for its first n tokens. The
share of tokens after their request's n-th equals the share that may be late. Without it one request
without slack would hold up all that wait, which then bring no slack along either. It makes tokens
late only hundreds of steps later. So it is off while the budget is spent or overspent, or that
would never recover; and a full budget does not raise it.

Tokens may be late only where first tokens would be late otherwise: once the longest wait for a
first token is half of the TTFT. Before, steps go by the least slack of all but those more than
D / 2 behind. Where no TTFT is agreed tokens may be late at any time.

Prompts are computed as soon as that allows: what a prompt costs the slack of others is the same
now and later, and one that waits loses slack of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from controller.models.arrays import Floats

LEAST = -0.5  # of D: how much shorter than D a step is made, at most, to make good what is late
# Of the least slack, a step may take so much: it is longer than those that the step-time model was
# fitted to, and may be mispredicted by a quarter or more.
AT_ONCE = 0.5
BUDGET_FRAC = 0.7  # of what may be late
MEMORY_STEPS = 4096  # of the budget: several lives of a request
FIRST_STEPS = 1024  # what it begins with, as if one request had decoded for so long
# The margin is counted in root mean square errors (RMSE) of predicted steps, and moved by so much
# of one for a step with nothing but late tokens.
MOVE, FIRST_MULTIPLIER, MOST_MULTIPLIER = 0.2, 3.0, 12.0
ALLOWANCE_FRAC = 0.5  # of the TTFT: the slack that the allowance may take
MAY_BE_LATE_FROM = 0.5  # of the TTFT: from such a wait for a first token on, tokens may be late
# A request that has waited for more of the TTFT is demoted. At half, a queue that is served in time
# has some demoted for nothing; at all of it, a queue that was too long once brings no slack along.
LATE_FRAC = 0.75
DEBT_STEPS = 1024  # a budget is overspent by no more than it accrues in so many steps
FIRST_RMSE_FRAC = 0.02  # of D
RMSE_MEMORY = 0.02  # weight of the newest error: the last 50 steps


@dataclass(frozen=True, slots=True)
class DeadlineSlack:
    """The requests that decode, one element each, in any order.

    Args:
        slack_s: seconds; negative of one that is late.
        generated: tokens.
        waiting_s: the longest wait for a first token, among half-computed prompts and the first
            request of the queue, seconds; 0: there is none.
    """

    slack_s: Floats
    generated: Floats
    waiting_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Remaining:
    """How many tokens a request still generates after its first ``generated``, on average.

    Args:
        generated, tokens: shape (n,) both, the first ascending.
        beyond: n, by the share of all tokens that come after the n-th of their request.
    """

    generated: Floats
    tokens: Floats
    beyond: Callable[[float], float]

    def of(self, generated: Floats) -> Floats:
        """The values of each of these requests."""
        found: Floats = np.interp(generated, self.generated, self.tokens)
        return found


class ErrorBudget:
    """Tokens that may be late: a share of all, less those that were.

    Args:
        percentile: %, of the tokens that are to be in time.
    """

    def __init__(self, percentile: float) -> None:
        self.accrual = BUDGET_FRAC * (1 - percentile / 100)  # for each token
        self.tokens = self.accrual * FIRST_STEPS

    def observe(self, decodes: int, late: int) -> None:
        """A step gave so many tokens, of which so many were late."""
        tokens = self.tokens + self.accrual * decodes - late - self.tokens / MEMORY_STEPS
        # A pause of the host makes a whole batch late, and owes no more than that.
        self.tokens = max(tokens, -self.accrual * DEBT_STEPS * max(decodes, 1))


class Pace:
    """Finds x for one engine, from step to step.

    Args:
        itl_s: D, seconds.
        percentile: %, of the tokens that are to be in time.
        ttft_s: agreed; 0: none is.

    Attributes:
        budget: of late tokens.
    """

    def __init__(self, itl_s: float, percentile: float, ttft_s: float = 0.0) -> None:
        self._itl_s, self._ttft_s = itl_s, ttft_s
        self.budget = ErrorBudget(percentile)
        self._multiplier, self._variance = FIRST_MULTIPLIER, (FIRST_RMSE_FRAC * itl_s) ** 2

    @property
    def margin_s(self) -> float:
        """What is held back of every slack, seconds."""
        return self._multiplier * math.sqrt(self._variance)

    def observe(self, decodes: int, late: int, error_s: float) -> None:
        """A step gave so many tokens, so many of them late, and ended ``error_s`` late."""
        self.budget.observe(decodes, late)
        error_s = min(max(error_s, -self._itl_s), self._itl_s)  # no pause of the host
        self._variance += RMSE_MEMORY * (error_s * error_s - self._variance)
        multiplier = self._multiplier + MOVE * (late / decodes - self.budget.accrual)
        self._multiplier = min(max(multiplier, 0.0), MOST_MULTIPLIER)

    def extra_s(self, slack: DeadlineSlack, remaining: Remaining | None) -> float:
        """x, seconds.

        Args:
            slack: of one request at least.
            remaining: None: nothing is known of output lengths, and everybody's slack counts.
        """
        lost_s = LEAST * self._itl_s
        order = np.argsort(slack.slack_s)
        slack_s = slack.slack_s[order]
        late = int(np.searchsorted(slack_s, lost_s))
        may_be_late = remaining is not None and slack.waiting_s >= MAY_BE_LATE_FROM * self._ttft_s
        if remaining is not None and may_be_late and self.budget.tokens > 0:
            left = remaining.of(slack.generated[order]).cumsum()
            late = max(late, int(np.searchsorted(left, self.budget.tokens, side="right")))
        # Where all may be late, the one with most slack still says how long a step may be.
        least_s = float(slack_s[min(late, len(slack_s) - 1)]) - self.margin_s
        least_s = max(least_s * AT_ONCE if least_s > 0 else least_s, lost_s)
        if remaining is None or not may_be_late:
            return least_s
        return max(least_s, self.allowance_s(remaining))

    def allowance_s(self, remaining: Remaining) -> float:
        """The allowance beyond D, seconds; minus infinity where there is none."""
        if not self._ttft_s or self.budget.tokens <= 0:
            return -math.inf
        return ALLOWANCE_FRAC * self._ttft_s / max(remaining.beyond(self.budget.accrual), 1.0)
