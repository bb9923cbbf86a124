"""The share of load that may exceed what is provided for, learned from late requests."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from serve_app.scaling.reading import ReplicaLoad

FIRST, LEAST, MOST = 0.007, 0.002, 0.05  # of the load: first value and bounds
DOUBLES_S = 1800.0  # without a late request the share doubles in this time
LONGEST_GAP_S = 60.0  # between two readings; after a longer one nothing is learned
# Many are late if it is more than this share of the requests served or refused lately, and more
# than a handful.
LATELY_S, MANY, HANDFUL = 60.0, 0.1, 5
LEAST_SERVED = 0.01  # of arrivals: with fewer served, the number of refused is unknown


class ErrorBudget:
    """The share of the load that may exceed what is provided for.

    Its effect on requests cannot be computed: a queue of two seconds swallows a peak of one, and a
    mean over ten hides one of five. So it follows the outcome: its logarithm grows by
    log(2) x (1 - late / aim) per ``DOUBLES_S``, and rests if as many are late as may be.

    Args:
        late_frac: the aim, a share of requests. Refused requests count as late.
    """

    def __init__(self, late_frac: float) -> None:
        self._aim = late_frac
        self._log = math.log(FIRST)
        self._looked_s = self._learned_s = -math.inf
        self._counted: dict[Any, tuple[float, float]] = {}
        self._lately: deque[tuple[float, float, float]] = deque()  # when, served, late

    def look(self, now_s: float, replicas: Sequence[ReplicaLoad]) -> float:
        """Count late requests since the last reading; returns the share from now on."""
        if not 0 <= now_s - self._looked_s <= LONGEST_GAP_S:
            self._lately.clear()
            self._counted = {}  # late ones from the gap are not recent
            self._learned_s = now_s
        while self._lately and self._lately[0][0] <= now_s - LATELY_S:
            self._lately.popleft()
        served, late = self._count(replicas)
        if late is not None:
            self._lately.append((now_s, served, served * late))
            # Replicas publish it every few readings, for the time since they last did.
            lasted_s = min(now_s - self._learned_s, LONGEST_GAP_S)
            grows = math.log(2) * lasted_s / DOUBLES_S * (1 - late / self._aim)
            self._log = min(max(self._log + grows, math.log(LEAST)), math.log(MOST))
            self._learned_s = now_s
        elif not any(each.arrivals_per_s for each in replicas):
            # Without arrivals: otherwise the start of a burst, before a queue builds, would count
            # for the gap.
            self._learned_s = now_s
        self._looked_s = now_s
        return self.share

    @property
    def share(self) -> float:
        """The part of the arrivals that may exceed the capacity provided for."""
        return math.exp(self._log)

    @property
    def many_late(self) -> bool:
        """Whether more than ``MANY`` of requests served or refused in ``LATELY_S`` are late.

        And more than a ``HANDFUL``. So many are late if the load has changed, and a forecast knows
        the errors only a start later. A request counts when its first token is sent: this stays
        true until the backlog is gone, and a minute longer.
        """
        served = sum(count for _, count, _ in self._lately)
        return sum(late for *_, late in self._lately) > max(MANY * served, HANDFUL)

    def _count(self, replicas: Sequence[ReplicaLoad]) -> tuple[float, float | None]:
        """Requests served or refused since the last reading, and the share of late ones.

        None: none was served, or the late ones are unknown.
        """
        counted, served, late = {}, 0.0, 0.0
        for each in replicas:
            if each.first_tokens is None or each.late_first_tokens is None:
                continue
            now = counted[each.name] = each.first_tokens, each.late_first_tokens
            before = self._counted.get(each.name, now)
            if now[0] >= before[0] and now[1] >= before[1]:  # else its engine restarted
                served, late = served + now[0] - before[0], late + now[1] - before[1]
        self._counted = counted
        if not served:
            return 0.0, None
        arrivals = sum(each.arrivals_per_s for each in replicas)
        refused = sum(each.refused_per_s for each in replicas) / arrivals if arrivals else 0.0
        late_frac = 1 - (1 - min(late / served, 1.0)) * (1 - refused)
        return served / max(1 - refused, LEAST_SERVED), late_frac
