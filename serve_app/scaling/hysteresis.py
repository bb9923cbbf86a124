"""How far the load has to move before the number of replicas follows it.

A number that follows every rise and fall of a forecast by a hair turns back minutes later, and each
turn is a start that is paid for and serves no request. So one replica more has to be worth some
part of a replica, and one fewer has to leave some part of one free. Both grow with the fleet, as
what moves without a reason does, and end where a replica is plenty.
"""

MORE_FRAC, MOST_MORE = 0.07, 0.7  # of what runs, in replicas: by less no replica is asked for
SPARE_FRAC, LEAST_SPARE, MOST_SPARE = 0.1, 0.2, 1.2  # free before a replica is given up


def hardly_more(wanted: float, replicas: int, part: float = 1.0) -> bool:
    """Whether what is wanted is above this number, and by too little for another replica.

    Args:
        part: of the band that counts, up to 1.
    """
    band = min(MORE_FRAC * replicas, MOST_MORE) * min(part, 1.0)
    return replicas < wanted <= replicas + band


def with_spare(replicas: float) -> float:
    """What has to fit into the replicas that stay, before one is given up."""
    return replicas + min(max(SPARE_FRAC * replicas, LEAST_SPARE), MOST_SPARE)
