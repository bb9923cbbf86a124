"""One replay of a row: its requests, its ground, its figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.disturbed.rows import SAMPLED, SAMPLED_SEED, Row, workload_of
from controller.config import Sla
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import replay
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import late_share, summarise
from simulator.virtual.ground import Ground
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.requests import LengthStats, Request, length_stats
from simulator.workloads.traffic import Traffic, draw_traffic

LEAST_REQUESTS = 1000
LEAST_ITLS = 4000  # a replay lasts at least so many D ...
LEAST_PHASES = 5  # ... and so many slow phases, on average


class Draw:
    """What a row's replays have in common.

    Attributes:
        stats: means of the workload; the same for every seed, and so is the rate.
    """

    def __init__(self, row: Row) -> None:
        load = row.load
        self.row = row
        self.profile = load_profile(load.profile)
        self.sla = Sla(itl_ms=load.itl_ms)
        self.itl_s = load.itl_ms / 1000
        self._workload = workload_of(load.workload)
        sample = draw_traffic(self._workload, SAMPLED, 1.0, SAMPLED_SEED).requests
        self.stats: LengthStats = length_stats(sample)
        self.rate_per_s = load.rate_per_s or (load.of_limit or 0.0) * fluid_limit_per_s(
            self.profile, self.stats, self.itl_s
        )

    def requests(self, seed: int, share: float = 1.0) -> tuple[Request, ...]:
        """The first ``share`` of the row's requests, by one draw."""
        return self.drawn(math.ceil(share * self.count), seed).at(self.rate_per_s)

    def drawn(self, n: int, seed: int) -> Traffic:
        """So many requests, at any rate."""
        return draw_traffic(self._workload, n, 1.0, seed)

    @property
    def count(self) -> int:
        """The row's requests."""
        every_s = (slow.mean_s / slow.share for slow in self.row.disturbed.disturbances.slow)
        least_s = max(LEAST_ITLS * self.itl_s, LEAST_PHASES * max(every_s, default=0.0))
        return math.ceil(max(LEAST_REQUESTS, self.rate_per_s * least_s))

    def share_of(self, seconds: float) -> float:
        """The share of them that comes in so many seconds."""
        return min(seconds * self.rate_per_s / self.count, 1.0)


@dataclass(frozen=True, slots=True)
class Task:
    """A policy on one draw of a row.

    Args:
        seed: of the requests and of the disturbances.
        share: of the row's requests.
    """

    row: Row
    spec: str
    seed: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a replay showed.

    Args:
        j: ``simulator.replay.measure.j_of``.
        late_share, ttft_s, tokens_per_s: of the whole replay; TTFT is the mean.
        peak_running: the most requests that ran at once.
    """

    j: float
    late_share: float
    ttft_s: float
    tokens_per_s: float
    p999_ms: float
    stalls: int
    longest_ms: float
    peak_running: int


def is_ours(task: Task) -> bool:
    """Whether the policy is one of this project's own, and no way to start vLLM."""
    return not task.spec.startswith("static")


def run(task: Task) -> Figures:
    """Replay it."""
    return replayed(Draw(task.row), task.spec, task.seed, task.share)


def trace_of(
    draw: Draw,
    spec: str,
    seed: int,
    requests: Sequence[Request],
    disturbances: Disturbances | None = None,
) -> Trace:
    """One replay of these requests.

    Args:
        seed: of the disturbances.
        disturbances: None: the row's.
    """
    if disturbances is None:
        disturbances = draw.row.disturbed.disturbances
    ground = Ground(draw.profile, disturbances=disturbances, disturbance_seed=seed)
    return replay(requests, parse_policy(spec, draw.sla, engine_of(draw.profile)), ground)


def replayed(draw: Draw, spec: str, seed: int, share: float = 1.0) -> Figures:
    """The figures of a policy on a draw whose row is known already."""
    trace = trace_of(draw, spec, seed, draw.requests(seed, share))
    summary = summarise(spec, trace, draw.sla)
    return Figures(
        summary.j or 0.0,
        late_share(trace, draw.sla) or 0.0,
        (summary.ttft_ms.mean or 0.0) / 1000,
        summary.output_tokens_per_s,
        summary.itl_ms.p99_9 or 0.0,
        summary.stalls or 0,
        summary.longest_gap_ms or 0.0,
        int(trace.column("running").max()),
    )
