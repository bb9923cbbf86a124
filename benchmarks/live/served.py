"""What clients of one engine saw of their requests, gap by gap."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Served:
    """What clients of one engine saw, in seconds since the start.

    Args:
        arrival_s, first_s, last_s, tokens: of each request, shape (n,): when it was due, its first
            and last token (NaN: none came), and how many it got.
        gap_s, gap_end_s, gap_request: time between two tokens, when it ended, and whose it was,
            shape (gaps,).
        took_s: until the last request ended.
    """

    arrival_s: Floats
    first_s: Floats
    last_s: Floats
    tokens: NDArray[np.int64]
    gap_s: Floats
    gap_end_s: Floats
    gap_request: NDArray[np.int64]
    took_s: float
