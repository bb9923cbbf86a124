"""Requests of classes in a replay: who asks for which, and what each class gets of its due."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.classes import ServiceClass, ServiceClasses
from simulator.replay.measure import TOLERANCE
from simulator.virtual.trace import Trace
from simulator.workloads.requests import Request

# Of those that came in the second half, so many have to have their first token by its end, of all
# classes together: else a queue grows, which a deadline of minutes would hide in a shorter run.
SERVED_FRAC = 0.98


def spread_over(requests: Sequence[Request], classes: ServiceClasses, seed: int) -> list[Request]:
    """The same requests, each of a class drawn with equal chances; in its priority."""
    names = list(classes.by_name)
    drawn = np.random.default_rng((seed, 3)).integers(len(names), size=len(requests)).tolist()
    return [
        replace(r, service=names[k], priority=classes.by_name[names[k]].priority)
        for r, k in zip(requests, drawn, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Attained:
    """What one class had of what it was promised, in the second half of a run.

    Args:
        first_frac: of those that came in time to have it before the end, the share whose first
            token came within the time to first token; 1 if none is promised.
        gaps_frac: the share of its gaps between tokens within its ITL; 1 if none is.
    """

    first_frac: float
    gaps_frac: float

    @property
    def frac(self) -> float:
        """The less of first tokens and of gaps in time."""
        return min(self.first_frac, self.gaps_frac)


def attained(trace: Trace, name: str, promised: ServiceClass) -> Attained:
    """What the requests of one class attained."""
    half_s, outcomes, gaps = trace.end_s / 2, trace.outcomes, trace.gaps
    itl_s = np.inf if promised.itl_ms is None else promised.itl_ms / 1000 * TOLERANCE
    ttft_s = np.inf if promised.ttft_ms is None else promised.ttft_ms / 1000 * TOLERANCE
    mine = np.array([o.request.service == name for o in outcomes], dtype=bool)
    arrived_s = np.array([o.request.arrival_s for o in outcomes], dtype=float)
    first_s = np.array([o.first_token_s for o in outcomes], dtype=float) - arrived_s
    known = mine & (arrived_s >= half_s)
    # One that still waits when the run ends may yet be in time, unless its time is over.
    known &= ~np.isnan(first_s) | (arrived_s + ttft_s < trace.end_s)
    in_time = first_s <= ttft_s
    counted = mine[gaps.request] & (gaps.end_s >= half_s)
    late = gaps.length_s > itl_s
    return Attained(
        _share(in_time[known]),
        _share(~late[counted]),
    )


def _share(true: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> float:
    return float(true.mean()) if len(true) else 1.0


def keeps_up(trace: Trace) -> bool:
    """Whether no queue grows in the second half."""
    half_s = trace.end_s / 2
    came = sum(o.request.arrival_s >= half_s for o in trace.outcomes)
    first = [o.first_token_s for o in trace.outcomes if o.first_token_s is not None]
    return sum(s >= half_s for s in first) >= SERVED_FRAC * came


def holds(trace: Trace, classes: ServiceClasses) -> bool:
    """Whether every class has what it is promised at its percentile, and no queue grows."""
    return keeps_up(trace) and all(
        attained(trace, name, one).frac >= one.percentile / 100
        for name, one in classes.by_name.items()
    )
