"""How far the load has to move before the number of replicas follows.

A number that follows a forecast's every rise and fall turns back minutes later, and each turn pays
for a start that serves no request. So one replica more has to be needed by some part of a replica,
and one fewer has to leave some part free. Both parts grow with the fleet, as noise does, and are
bounded.
"""

MORE_FRAC, MOST_MORE = 0.07, 0.7  # of the running replicas: smaller rises are ignored
SPARE_FRAC, LEAST_SPARE, MOST_SPARE = 0.1, 0.2, 1.2  # free part before a replica is removed


def hardly_more(wanted: float, replicas: int, part: float = 1.0) -> bool:
    """Whether ``wanted`` exceeds this number by too little for another replica.

    Args:
        part: share of the band that counts, up to 1.
    """
    band = min(MORE_FRAC * replicas, MOST_MORE) * min(part, 1.0)
    return replicas < wanted <= replicas + band


def with_spare(replicas: float) -> float:
    """The load that the remaining replicas must have headroom for before one is removed."""
    return replicas + min(max(SPARE_FRAC * replicas, LEAST_SPARE), MOST_SPARE)
