"""How much of the load may be above what is provided for, learned by who is late."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from serve_app.scaling.reading import ReplicaLoad

FIRST, LEAST, MOST = 0.007, 0.002, 0.05  # of the load: at the beginning, and the bounds
DOUBLES_S = 1800.0  # if none is late for so long, twice as much may be above
LONGEST_GAP_S = 60.0  # between two looks: after a longer one it is as it was
# Of those served or refused so lately many are late where more than this share is, and more than a
# handful.
LATELY_S, MANY, HANDFUL = 60.0, 0.1, 5
LEAST_SERVED = 0.01  # of those that came: below, how many were refused is not known from the served


class ErrorBudget:
    """The share of the load that may be above what is provided for.

    What it does to requests is not in the figures: a queue of two seconds swallows a peak of one,
    and a mean over ten hides one of five. So it follows the outcome: its logarithm grows by
    log(2) x (1 - late / aim) per ``DOUBLES_S``, and stands still where as many are late as may be.

    Args:
        late_frac: the aim, a share of requests. Who is refused counts as late.
    """

    def __init__(self, late_frac: float) -> None:
        self._aim = late_frac
        self._log = math.log(FIRST)
        self._looked_s = self._learned_s = -math.inf
        self._counted: dict[Any, tuple[float, float]] = {}
        self._lately: deque[tuple[float, float, float]] = deque()  # when, served, late

    def look(self, now_s: float, replicas: Sequence[ReplicaLoad]) -> float:
        """Count who was late since the last look; the share from now on."""
        if not 0 <= now_s - self._looked_s <= LONGEST_GAP_S:
            self._lately.clear()
            self._counted = {}  # who was late meanwhile was not lately
            self._learned_s = now_s
        while self._lately and self._lately[0][0] <= now_s - LATELY_S:
            self._lately.popleft()
        served, late = self._count(replicas)
        if late is not None:
            self._lately.append((now_s, served, served * late))
            # Replicas say it every few looks, and then it is of the time since they did before.
            lasted_s = min(now_s - self._learned_s, LONGEST_GAP_S)
            grows = math.log(2) * lasted_s / DOUBLES_S * (1 - late / self._aim)
            self._log = min(max(self._log + grows, math.log(LEAST)), math.log(MOST))
            self._learned_s = now_s
        elif not any(each.arrivals_per_s for each in replicas):
            # None comes: the first of a burst, before a queue builds, would count for all of it.
            self._learned_s = now_s
        self._looked_s = now_s
        return self.share

    @property
    def share(self) -> float:
        """The part of the arrivals that may exceed the capacity provided for."""
        return math.exp(self._log)

    @property
    def many_late(self) -> bool:
        """Whether more than ``MANY`` of those served or refused in ``LATELY_S`` are late.

        And more than a ``HANDFUL``. So many are late where the load has become another one, whose
        errors a forecast knows only a start from now. A request counts when its first token was
        sent: this stays true until the backlog is gone, and a minute longer.
        """
        served = sum(count for _, count, _ in self._lately)
        return sum(late for *_, late in self._lately) > max(MANY * served, HANDFUL)

    def _count(self, replicas: Sequence[ReplicaLoad]) -> tuple[float, float | None]:
        """How many were served or refused since the last look, and the share of late ones.

        None: none was served, or it is unknown how many were late.
        """
        counted, served, late = {}, 0.0, 0.0
        for each in replicas:
            if each.first_tokens is None or each.late_first_tokens is None:
                continue
            now = counted[each.name] = each.first_tokens, each.late_first_tokens
            before = self._counted.get(each.name, now)
            if now[0] >= before[0] and now[1] >= before[1]:  # else its engine is a new one
                served, late = served + now[0] - before[0], late + now[1] - before[1]
        self._counted = counted
        if not served:
            return 0.0, None
        arrivals = sum(each.arrivals_per_s for each in replicas)
        refused = sum(each.refused_per_s for each in replicas) / arrivals if arrivals else 0.0
        late_frac = 1 - (1 - min(late / served, 1.0)) * (1 - refused)
        return served / max(1 - refused, LEAST_SERVED), late_frac
