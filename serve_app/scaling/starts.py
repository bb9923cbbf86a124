"""How long a replica takes from being asked for until it runs, learned by watching."""

import math
from collections import deque
from collections.abc import Collection
from statistics import median
from typing import Any

KEPT = 5  # of the last starts the median counts: one that waited for a machine is not the rule
GAP_S = 60.0  # between two looks: after a longer one the times of arrivals are unknown
LONGEST_S = 600.0  # what takes longer waits for machines, which asking earlier does not bring
SEEN_KEPT = 1000  # replicas that are gone and might come back


class Starts:
    """Matches the replicas asked for with those that came, oldest first.

    Args:
        assumed_s: what a start takes, until one was seen.
    """

    def __init__(self, assumed_s: float) -> None:
        self._assumed_s = assumed_s
        self._took_s: deque[float] = deque(maxlen=KEPT)
        self._asked_s: list[float | None] = []  # None: not known
        self._looked_s = -math.inf
        self._first_s = -math.inf  # of the looks
        self._seen_s: dict[Any, float] = {}  # when each was seen last
        self._current: int | None = None

    def observe(
        self, now_s: float, current: int, target: int, names: Collection[Any] | None = None
    ) -> None:
        """Count what came and what was asked for since the last look.

        Args:
            names: of the replicas that run: one that was seen before did not start now, it was out
                for a moment. None: they are not known, and any that is one more has started.
        """
        # The clock went back, or nobody looked for long, or it was set ahead. While none runs and
        # one is asked for, Ray Serve does not ask this policy.
        gap_s = math.inf if self._current == 0 else GAP_S
        if self._current is None:
            self._first_s = now_s
        if not 0 <= now_s - self._looked_s <= gap_s:
            self._asked_s = [None] * len(self._asked_s)
        self._looked_s = now_s
        if self._current is None:
            came = 0
        elif names is None:
            came = max(current - self._current, 0)
        else:
            came = sum(name not in self._seen_s for name in names)
        self._remember(now_s, names or ())
        for _ in range(min(came, len(self._asked_s))):
            asked_s = self._asked_s.pop(0)
            if asked_s is not None and self._known(asked_s, now_s):
                self._took_s.append(now_s - asked_s)
        self._current = current
        coming = max(target - current, 0)
        del self._asked_s[coming:]  # no longer wanted
        self._asked_s += [now_s] * (min(coming, 10_000) - len(self._asked_s))

    def _known(self, asked_s: float, now_s: float) -> bool:
        """Whether the time since that ask says how long the start took.

        What was coming at the first look may have been asked for long before: to a controller that
        was started again, or a policy that was configured anew, a whole fleet comes within seconds.
        So that counts only where it took no less than is assumed.
        """
        return asked_s != self._first_s or now_s - asked_s >= self._assumed_s

    def _remember(self, now_s: float, names: Collection[Any]) -> None:
        self._seen_s.update(dict.fromkeys(names, now_s))
        if len(self._seen_s) > 2 * len(names) + SEEN_KEPT:
            recent = sorted(self._seen_s, key=self._seen_s.__getitem__)
            self._seen_s = {name: self._seen_s[name] for name in recent[-len(names) - SEEN_KEPT :]}

    @property
    def takes_s(self) -> float:
        """Seconds from now until a replica asked for now runs."""
        return min(median(self._took_s) if self._took_s else self._assumed_s, LONGEST_S)

    @property
    def learned(self) -> bool:
        """Whether a start was seen."""
        return bool(self._took_s)

    def next_s(self, now_s: float) -> float:
        """Seconds until the next replica runs: one that is coming, or one asked for now."""
        asked_s = self._asked_s[0] if self._asked_s else now_s
        if asked_s is None:
            return self.takes_s
        return min(max(self.takes_s - (now_s - asked_s), 0.0), self.takes_s)
