"""The figures of a run, of a real engine or of a replay; each definition stands here once."""

from dataclasses import dataclass

import numpy as np

from benchmarks.live.served import Served

TOLERANCE = 1 + 1e-9  # a step sized to exactly the SLA is inside, whatever its last bit says


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the requests that arrived after the first seconds.

    Args:
        late_frac: share of the gaps between tokens that are longer than the SLA.
        itl_ms: percentiles 50, 99 and 99.9 of the gaps.
        ttft_s: mean and percentiles 50 and 99, arrival to first token.
        tokens_per_s: output tokens of all requests that came between the first seconds and the end
            of arrivals, over that time.
        j: max(late share / allowed share, 1) x mean TTFT in s: what settings are compared by.
    """

    late_frac: float
    itl_ms: tuple[float, ...]
    ttft_s: tuple[float, ...]
    tokens_per_s: float
    j: float


def figures_of(
    served: Served, itl_s: float, percentile: float, skip_s: float, seconds: float
) -> Figures:
    """The figures of requests that arrived from ``skip_s`` on.

    Args:
        itl_s, percentile: the SLA.
        seconds: of arrivals.

    Raises:
        ValueError: no request that counts got a first token, or none a second.
    """
    counts = served.arrival_s >= skip_s
    gap_s = served.gap_s[counts[served.gap_request]]
    ttft_s = (served.first_s - served.arrival_s)[counts]
    if not len(ttft_s) or np.isnan(ttft_s).any() or not len(gap_s):
        raise ValueError(f"{counts.sum()} requests after {skip_s:g} s are too few for figures")
    late = float((gap_s > itl_s * TOLERANCE).mean())
    mean_ttft_s = float(ttft_s.mean())
    came_s = np.concatenate([served.first_s, served.gap_end_s])
    return Figures(
        late,
        _percentiles(gap_s * 1000, 50, 99, 99.9),
        (mean_ttft_s, *_percentiles(ttft_s, 50, 99)),
        float(((came_s >= skip_s) & (came_s < seconds)).sum()) / (seconds - skip_s),
        max(late / (1 - percentile / 100), 1.0) * mean_ttft_s,
    )


def _percentiles(values: np.ndarray, *at: float) -> tuple[float, ...]:
    return tuple(np.percentile(values, at).tolist())
