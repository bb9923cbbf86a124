"""How much of the load may be above what is provided for, learned by who is late."""

import math
from collections.abc import Sequence
from typing import Any

from serve_app.scaling.reading import ReplicaLoad

FIRST, LEAST, MOST = 0.007, 0.002, 0.05  # of the load: at the beginning, and the bounds
DOUBLES_S = 1800.0  # where none is late for so long, twice as much may be above
LONGEST_GAP_S = 60.0  # between two looks: after a longer one it is as it was


class Allowance:
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
        self._looked_s = -math.inf
        self._counted: dict[Any, tuple[float, float]] = {}

    def look(self, now_s: float, replicas: Sequence[ReplicaLoad]) -> float:
        """Count who was late since the last look; the share from now on."""
        late = self._late(replicas)
        if late is not None and 0 < now_s - self._looked_s <= LONGEST_GAP_S:
            grows = math.log(2) * (now_s - self._looked_s) / DOUBLES_S * (1 - late / self._aim)
            self._log = min(max(self._log + grows, math.log(LEAST)), math.log(MOST))
        self._looked_s = now_s
        return math.exp(self._log)

    def _late(self, replicas: Sequence[ReplicaLoad]) -> float | None:
        """The share of those served or refused since the last look; None where it is not known."""
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
            return None
        arrivals = sum(each.arrivals_per_s for each in replicas)
        refused = sum(each.refused_per_s for each in replicas) / arrivals if arrivals else 0.0
        return 1 - (1 - min(late / served, 1.0)) * (1 - refused)
