"""The least time that prompts can take at a server, where some of its queues may vanish at once.

The server is chunked prefill at its full speed; it vanishes into a step as long as it takes.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_TOGETHER = 64  # arrivals of one busy period; then it ends for nothing, which only lowers all
HALVINGS = 24
MOST_PRICE_S = 100.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one prompt takes, seconds.

    Args:
        service_s: of the server's time.
        chunked_s: until its first token, with nobody else there.
        whole_s: the same in a single step.
    """

    arrival_s: float
    service_s: float
    chunked_s: float
    whole_s: float


@dataclass(frozen=True, slots=True)
class _Course:
    """From a prompt that finds nobody there.

    Args:
        cleared_s: sum of the times of the first n, where the queue vanishes when the n-th comes.
        total_s: of all of the busy period, where it does not.
        length: of the busy period.
    """

    cleared_s: tuple[float, ...]
    total_s: float
    length: int


def least_mean_s(prompts: Sequence[Prompt], clears: int, step_s: float) -> float:
    """The mean time to the first token, by shortest remaining time and with the best clears.

    Which queues vanish is chosen with all arrivals known, by dynamic programming with a price on
    each; for every price, the sum less price x clears is below the least one (weak duality).

    Args:
        prompts: in order of arrival.
        clears: how often the queue may vanish.
        step_s: who is there then has its first token after a step at least, of so many seconds,
            and what is left of its prompt.
    """
    faster = min((max(p.whole_s - step_s, 0.0) / p.service_s for p in prompts), default=1.0)
    courses = [_course(prompts, first, step_s, faster) for first in range(len(prompts))]
    low_s, high_s, best_s = 0.0, MOST_PRICE_S, 0.0
    for _ in range(HALVINGS):
        price_s = (low_s + high_s) / 2
        sum_s, used = _cheapest(courses, price_s)
        best_s = max(best_s, sum_s - price_s * clears)
        low_s, high_s = (price_s, high_s) if used > clears else (low_s, price_s)
    return best_s / len(prompts)


def _cheapest(courses: Sequence[_Course], price_s: float) -> tuple[float, int]:
    """The least sum of times and prices, and how many clears it takes."""
    sums: list[tuple[float, int]] = [(math.inf, 0)] * (len(courses) + 1)
    sums[0] = 0.0, 0
    for first, course in enumerate(courses):
        sum_s, used = sums[first]
        if sum_s == math.inf:
            continue
        end = first + course.length
        sums[end] = min(sums[end], (sum_s + course.total_s, used))
        for number, cleared_s in enumerate(course.cleared_s, first + 1):
            if sum_s + cleared_s + price_s < sums[number][0]:
                sums[number] = sum_s + cleared_s + price_s, used + 1
    return sums[-1]


def _course(prompts: Sequence[Prompt], first: int, step_s: float, faster: float) -> _Course:
    here: list[tuple[float, int]] = []  # seconds of service left, and whose
    now_s, done_s = prompts[first].arrival_s, 0.0
    cleared_s: list[float] = []
    for number in range(first, min(first + MOST_TOGETHER, len(prompts))):
        arrival_s = prompts[number].arrival_s
        while here and now_s + here[0][0] <= arrival_s:
            left_s, one = heapq.heappop(here)
            now_s += left_s
            done_s += max(now_s - prompts[one].arrival_s, prompts[one].chunked_s)
        if here:
            left_s, one = here[0]
            heapq.heapreplace(here, (left_s - (arrival_s - now_s), one))
        elif number > first:
            return _Course(tuple(cleared_s), done_s, number - first)
        now_s = arrival_s
        heapq.heappush(here, (prompts[number].service_s, number))
        at_once_s = (
            max(
                prompts[one].whole_s,
                now_s - prompts[one].arrival_s + step_s + left_s * faster,
            )
            for left_s, one in here
        )
        cleared_s.append(done_s + sum(at_once_s))
    count = len(cleared_s)
    if count == MOST_TOGETHER and first + count < len(prompts):
        return _Course(tuple(cleared_s), cleared_s[-1], count)
    while here:
        left_s, one = heapq.heappop(here)
        now_s += left_s
        done_s += max(now_s - prompts[one].arrival_s, prompts[one].chunked_s)
    return _Course(tuple(cleared_s), done_s, count)
