"""Class affinity: classes get replicas of their own, unless a request would wait long for that.

A step is bounded by the strictest class that decodes in it, and every step costs its fixed part. So
a replica with one strict request carries about what it would if all were strict, and a fleet with
classes spread evenly carries no more than the strictest. With class affinity it carries what
separate engines for each class would, without a number of engines to choose: in an order of
replicas that all routers share, requests of the strictest class go to the first replica and all
others to the last, and each class moves on from its end if it would have to wait there. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_FRAC, MOST_PATIENCE_S = 0.125, 5.0  # of the TTFT, for the whole order of replicas
TIER = "service_tier"  # field of the body by which clients name a class


@dataclass(frozen=True, slots=True)
class End:
    """From which end of the replicas' order a class is served.

    Args:
        first: from the first replica on; otherwise from the last one on.
        patience_s: how much longer a request waits at this end rather than go to the other.
    """

    first: bool
    patience_s: float

    def detour_s(self, place: int, places: int) -> float:
        """The cost of a place in the order, as seconds of wait.

        Args:
            place: index from 0 to ``places`` - 1.
        """
        return self.step_s(places) * (place if self.first else places - 1 - place)

    def step_s(self, places: int) -> float:
        """The cost of one place further."""
        return self.patience_s / max(places - 1, 1)


def ends_of(promised: Mapping[str, tuple[float | None, float]]) -> dict[str, End]:
    """The end of each class; none if all classes are promised one ITL.

    Args:
        promised: by class its ITL, ms (None: no bound), and how long its requests may wait for the
            first token, seconds.
    """
    bounds = [itl for itl, _ in promised.values() if itl is not None]
    if not bounds or all(itl == bounds[0] for itl, _ in promised.values()):
        return {}
    strictest = min(bounds)
    return {
        name: End(itl == strictest, min(PATIENCE_FRAC * wait_s, MOST_PATIENCE_S))
        for name, (itl, wait_s) in promised.items()
    }


def end_of(payload: Any, ends: Mapping[str, End]) -> End | None:
    """The end of the class that a request's body names; None: it goes where headroom is largest.

    Args:
        payload: has the body's fields as attributes; None: the body is unknown here.
    """
    named = getattr(payload, TIER, None)
    return ends.get(named) if isinstance(named, str) else None
