"""Requests drawn from a workload: lengths by inverse transform, arrivals at a rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal, Protocol

import numpy as np

from simulator.workloads.arrivals import recorded_units, unit_arrivals
from simulator.workloads.conversations import Agents
from simulator.workloads.lengths import Floats, Marginal
from simulator.workloads.max_tokens import SPREAD, MaxTokens, with_max_tokens
from simulator.workloads.requests import Request

Rate = float | Literal["own"]
DEFAULT_REQUESTS = 1000
BURSTY_CV = 1.5  # CV of gaps that counts as bursty; Poisson's is 1


class Source(Protocol):
    """The origin of a workload's requests."""

    def draw(self, n: int, rng: np.random.Generator) -> list[Request]:
        """n requests at time 0."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """Two distributions of lengths with rank correlation ``spearman``.

    A Gaussian copula with r = 2 sin(pi rho / 6) gives the rank correlation rho.
    """

    input: Marginal
    output: Marginal
    spearman: float = 0.0

    def draw(self, n: int, rng: np.random.Generator) -> list[Request]:
        r = 2 * math.sin(math.pi * self.spearman / 6)
        first, other = rng.standard_normal((2, n))
        second = r * first + math.sqrt(max(1 - r * r, 0.0)) * other
        inputs, outputs = self.input.lengths(_cdf(first)), self.output.lengths(_cdf(second))
        return [Request(0.0, i, o) for i, o in zip(inputs.tolist(), outputs.tolist(), strict=True)]


def _cdf(z: Floats) -> Floats:
    return np.array([NormalDist().cdf(x) for x in z.tolist()])


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded requests in order, repeated from the first if more are needed."""

    requests: tuple[Request, ...]

    def draw(self, n: int, rng: np.random.Generator) -> list[Request]:
        ring = self.requests
        return [replace(ring[k % len(ring)], arrival_s=0.0) for k in range(n)]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests to draw, and their own arrivals.

    Args:
        rate_per_s: its mean rate; None: all come at once.
    """

    name: str
    source: Source
    rate_per_s: float | None = None
    gap_cv: float = 1.0

    @property
    def recorded(self) -> tuple[Request, ...]:
        """The requests of a recorded workload; empty for one that is drawn."""
        return self.source.requests if isinstance(self.source, Recorded) else ()

    @property
    def talks(self) -> bool:
        """Whether requests follow answers of others."""
        return isinstance(self.source, Agents)

    @property
    def bursts(self) -> bool:
        """Whether it is bursty: recorded arrivals, or gaps beyond Poisson's."""
        return bool(self.recorded) or self.gap_cv > BURSTY_CV

    def unit_arrivals(self, n: int, gap_cv: float | None, rng: np.random.Generator) -> Floats:
        """n arrivals at a mean rate of 1; recorded ones keep their pattern without ``gap_cv``."""
        if self.recorded and gap_cv is None:
            pattern = recorded_units(np.array([r.arrival_s for r in self.recorded]), n)
            if pattern is not None:
                return pattern
        return unit_arrivals(n, self.gap_cv if gap_cv is None else gap_cv, rng)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests with arrivals at a mean rate of 1, to be scaled."""

    requests: tuple[Request, ...]

    def at(self, rate_per_s: float) -> tuple[Request, ...]:
        """The requests at this rate; infinite: all at once."""
        return tuple(replace(r, arrival_s=r.arrival_s / rate_per_s) for r in self.requests)


def draw_traffic(
    workload: Workload,
    n: int,
    gap_cv: float | None,
    seed: int,
    max_tokens: MaxTokens = SPREAD,
) -> Traffic:
    """n requests at a mean rate of 1; lengths, arrivals and ``max_tokens`` have separate streams.

    Args:
        max_tokens: rule for requests without ``max_tokens``.
    """
    lengths, arrivals = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    requests = workload.source.draw(n, lengths)
    units = workload.unit_arrivals(n, gap_cv, arrivals).tolist()
    placed = (replace(r, arrival_s=unit) for r, unit in zip(requests, units, strict=True))
    return Traffic(with_max_tokens(placed, max_tokens, seed))


def draw_requests(
    workload: Workload,
    n: int | None,
    rate: Rate,
    gap_cv: float | None,
    seed: int,
    max_tokens: MaxTokens = SPREAD,
) -> tuple[Request, ...]:
    """n requests (None: all recorded ones, else DEFAULT_REQUESTS) at a rate.

    Args:
        rate: per second; ``own``: as recorded, or at the workload's own rate, or all at once.
        max_tokens: rule for requests without ``max_tokens``.
    """
    if n is None:
        n = len(workload.recorded) or DEFAULT_REQUESTS
    if rate == "own" and gap_cv is None and 0 < n <= len(workload.recorded):
        return with_max_tokens(workload.recorded[:n], max_tokens, seed)
    traffic = draw_traffic(workload, n, gap_cv, seed, max_tokens)
    if rate == "own":
        rate = math.inf if workload.rate_per_s is None else workload.rate_per_s
    return traffic.at(rate)


@dataclass(frozen=True, slots=True)
class Phase:
    """A workload at a rate for some seconds."""

    workload: Workload
    rate_per_s: float
    seconds: float


def draw_phases(
    phases: Sequence[Phase], gap_cv: float | None, seed: int, max_tokens: MaxTokens = SPREAD
) -> tuple[Request, ...]:
    """The requests of consecutive phases, rate x seconds of each."""
    requests: list[Request] = []
    start_s = 0.0
    for index, phase in enumerate(phases):
        n = max(round(phase.rate_per_s * phase.seconds), 1)
        traffic = draw_traffic(phase.workload, n, gap_cv, seed + index, max_tokens)
        requests += (
            replace(r, arrival_s=start_s + r.arrival_s) for r in traffic.at(phase.rate_per_s)
        )
        start_s += phase.seconds
    return tuple(requests)
