"""Class affinity: classes get replicas of their own, as long as no request waits long for it.

A step is held to the strictest class that decodes in it, and every step costs its fixed part. So a
replica with one strict request carries about what it would if all were strict, and classes spread
evenly over a fleet carry no more than the strictest. Gathered, they carry what engines divided
between the classes would, and no number of engines for each has to be chosen: in an order of the
replicas that all routers share, the strictest class is sent to the first one and all others to the
last one, and each goes on from its end as far as what is before it there makes it wait. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_FRAC, MOST_PATIENCE_S = 0.125, 5.0  # of the time to first token, for the whole way
TIER = "service_tier"  # the field of the body by which clients name a class


@dataclass(frozen=True, slots=True)
class End:
    """From which end of the replicas' order a class is served.

    Args:
        first: from the first replica on; else from the last one on.
        patience_s: how much longer a request rather waits there than at the other end.
    """

    first: bool
    patience_s: float

    def detour_s(self, place: int, places: int) -> float:
        """What going to this place of the order counts, as if so much longer were waited there.

        Args:
            place: from 0, of so many ``places``.
        """
        return self.step_s(places) * (place if self.first else places - 1 - place)

    def step_s(self, places: int) -> float:
        """The part of it that is from one place to the next."""
        return self.patience_s / max(places - 1, 1)


def ends_of(promised: Mapping[str, tuple[float | None, float]]) -> dict[str, End]:
    """The end of each class; none if all are promised the same time between tokens.

    Args:
        promised: by class its time between tokens, ms (None: no bound), and how long a request of
            it may wait for its first token, seconds.
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
    """The class that a request's body names; None: none, so it goes where most room is.

    Args:
        payload: with the body's fields as attributes; None: the body is not known here.
    """
    named = getattr(payload, TIER, None)
    return ends.get(named) if isinstance(named, str) else None
