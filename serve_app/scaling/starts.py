"""How long a replica takes from the request for it until it runs, learned by watching."""

import math
from collections import deque
from collections.abc import Collection
from statistics import median
from typing import Any

KEPT = 5  # starts of which the median counts: one that waited for a machine is not the rule
GAP_S = 60.0  # between two readings; after a longer one the times of starts are unknown
LONGEST_S = 600.0  # longer starts wait for machines; asking earlier does not bring these
SEEN_KEPT = 1000  # replicas that are gone and might return


class Starts:
    """Matches requested replicas with started ones, oldest first.

    Args:
        assumed_s: duration of a start, until one was seen.
    """

    def __init__(self, assumed_s: float) -> None:
        self._assumed_s = assumed_s
        self._took_s: deque[float] = deque(maxlen=KEPT)
        self._asked_s: list[float | None] = []  # None: unknown
        self._looked_s = -math.inf
        self._first_s = -math.inf  # first reading
        self._seen_s: dict[Any, float] = {}  # last reading with each name
        self._current: int | None = None

    def observe(
        self, now_s: float, current: int, target: int, names: Collection[Any] | None = None
    ) -> None:
        """Count replicas that came and were requested since the last reading.

        Args:
            names: of the running replicas. A known name did not start now, it was only out for a
                moment. None: unknown; each one more has started.
        """
        # The clock went back or was set ahead, or there was no reading for long. While none runs
        # and one is requested, Ray Serve does not call this policy.
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
        """Whether the time since that request tells how long the start took.

        A replica that was coming at the first reading may have been requested long before: after a
        restart of the controller, or a new policy, a whole fleet may come within seconds. So it
        counts only if it took at least ``assumed_s``.
        """
        return asked_s != self._first_s or now_s - asked_s >= self._assumed_s

    def _remember(self, now_s: float, names: Collection[Any]) -> None:
        self._seen_s.update(dict.fromkeys(names, now_s))
        if len(self._seen_s) > 2 * len(names) + SEEN_KEPT:
            recent = sorted(self._seen_s, key=self._seen_s.__getitem__)
            self._seen_s = {name: self._seen_s[name] for name in recent[-len(names) - SEEN_KEPT :]}

    @property
    def takes_s(self) -> float:
        """Expected seconds until a replica requested now runs."""
        return min(median(self._took_s) if self._took_s else self._assumed_s, LONGEST_S)

    @property
    def learned(self) -> bool:
        """Whether a start was seen."""
        return bool(self._took_s)

    def next_s(self, now_s: float) -> float:
        """Seconds until the next replica runs: one that is coming, or one requested now."""
        asked_s = self._asked_s[0] if self._asked_s else now_s
        if asked_s is None:
            return self.takes_s
        return min(max(self.takes_s - (now_s - asked_s), 0.0), self.takes_s)
