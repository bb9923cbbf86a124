"""Numbers over time as one line of block characters."""

from collections.abc import Sequence
from itertools import pairwise

LEVELS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """``values`` squeezed into ``width`` characters, each the mean of its share, from 0 to max."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(values) or 1
    return "".join(LEVELS[min(int(m / top * len(LEVELS)), len(LEVELS) - 1)] for m in means)
