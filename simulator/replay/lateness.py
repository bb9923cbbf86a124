"""Which tokens were late, by either meaning of an SLA (``batching.sla.delivery``).

gaps: a token is late that came more than ``itl_ms`` after the one before.
paced: token i of a request, counted from 0, is late after max(arrival + TTFT agreed, first token)
+ i x ITL; where no TTFT is agreed, after its first token + i x ITL. Tokens that come together
(speculation) count as one, by the first of them.
"""

import numpy as np
from numpy.typing import NDArray

from controller.config import Sla
from simulator.virtual.trace import Gaps, Trace

TOLERANCE = 1 + 1e-9  # a step sized to exactly D is inside, whatever its last bit says


def late_tokens(trace: Trace, sla: Sla) -> NDArray[np.bool_]:
    """Whether each token that ended a gap was late, in the order of ``trace.gaps``.

    Raises:
        TypeError: no time between tokens is agreed.
    """
    if sla.itl_s is None:
        raise TypeError("no time between tokens is agreed")
    gaps = trace.gaps
    if sla.delivery == "gaps":
        return gaps.length_s > sla.itl_s * TOLERANCE
    arrival_s = np.array([outcome.request.arrival_s for outcome in trace.outcomes], dtype=float)
    first_s = np.array([o.first_token_s for o in trace.outcomes], dtype=float)
    begin_s = np.fmax(first_s, arrival_s + (sla.ttft_ms or 0.0) / 1000)[gaps.request]
    late: NDArray[np.bool_] = gaps.end_s - begin_s > _token(gaps) * sla.itl_s * TOLERANCE
    return late


def _token(gaps: Gaps) -> NDArray[np.int64]:
    """Which token of its request ended each gap, from 1: gaps are in the order of time."""
    order = np.argsort(gaps.request, kind="stable")
    of = gaps.request[order]
    first = np.searchsorted(of, of)  # where the run of each request begins
    tokens = np.ones(len(of), np.int64) if gaps.tokens is None else gaps.tokens[order]
    before = tokens.cumsum() - tokens
    token = np.empty(len(of), dtype=np.int64)
    token[order] = before - before[first] + 1
    return token


class LateCounter:
    """Judges the gaps of a replay that goes on, one by one, in the order of time.

    Args:
        arrivals_s: of the requests, by their number.
    """

    def __init__(self, sla: Sla, arrivals_s: list[float]) -> None:
        if sla.itl_s is None:
            raise TypeError("no time between tokens is agreed")
        self._paced = sla.delivery == "paced"
        self._itl_s = sla.itl_s * TOLERANCE
        self._ttft_s = (sla.ttft_ms or 0.0) / 1000
        self._arrivals_s = arrivals_s
        self._due: dict[int, tuple[float, int]] = {}  # its beginning, and tokens since

    def late(self, length_s: float, end_s: float, request: int, tokens: int = 1) -> bool:
        """Whether the token that ended this gap was late."""
        if not self._paced:
            return length_s > self._itl_s
        known = self._due.get(request)
        if known is None:
            known = max(self._arrivals_s[request] + self._ttft_s, end_s - length_s), 0
        begin_s, token = known
        self._due[request] = begin_s, token + tokens
        return end_s - begin_s > (token + 1) * self._itl_s
