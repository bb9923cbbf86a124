"""Workloads by name: lengths drawn by inverse transform, arrivals at a rate."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.arrivals import Floats, at_rates, recorded_units, unit_arrivals
from benchmarks.requests import Request
from benchmarks.workload_files import QuantileEntry, read_requests, read_workloads
from controller.data_file import split_spec
from controller.errors import ConfigError
from controller.validation import unknown_key

DIRECTORY = Path(__file__).resolve().parent.parent / "configs" / "workloads"

Ints = NDArray[np.int64]
Rate = float | Literal["own", "minutes"]


class Marginal(Protocol):
    """A distribution of lengths by its quantile function."""

    def lengths(self, u: Floats) -> Ints:
        """Tokens (at least 1) at the probabilities ``u``."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always ``tokens``."""

    tokens: int

    def lengths(self, u: Floats) -> Ints:
        return np.full(len(u), self.tokens)


@dataclass(frozen=True, slots=True)
class Exponential:
    """The whole-numbered exponential (geometric from 1) with this mean, cut at ``cut``."""

    mean: float
    cut: int | None = None

    def lengths(self, u: Floats) -> Ints:
        if self.mean <= 1:
            return np.ones(len(u), dtype=np.int64)
        tokens = np.ceil(np.log1p(-u) / math.log1p(-1 / self.mean)).astype(np.int64)
        return np.clip(tokens, 1, self.cut)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Tokens at some percents, straight lines between."""

    percents: tuple[float, ...]
    tokens: tuple[float, ...]

    def lengths(self, u: Floats) -> Ints:
        tokens = np.interp(u * 100, self.percents, self.tokens)
        return np.maximum(np.rint(tokens), 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Workload:
    """Two distributions of lengths, their rank correlation, and how requests come.

    Args:
        rate_per_s: its own mean rate; None: it has none, all come at once.
        rate_per_s_by_minute: its own rates; empty where unknown.
        recorded: requests as they were seen, instead of the distributions.
    """

    name: str
    input: Marginal = Fixed(1)
    output: Marginal = Fixed(1)
    spearman: float = 0.0
    rate_per_s: float | None = None
    gap_cv: float = 1.0
    rate_per_s_by_minute: tuple[float, ...] = ()
    recorded: tuple[Request, ...] = ()

    def draw(self, n: int, rng: np.random.Generator) -> list[Request]:
        """n requests that all come at 0; recorded ones in order, from the start again at the end.

        A Gaussian copula with r = 2 sin(pi rho / 6) gives the rank correlation rho.
        """
        if self.recorded:
            ring = self.recorded
            return [replace(ring[k % len(ring)], arrival_s=0.0) for k in range(n)]
        r = 2 * math.sin(math.pi * self.spearman / 6)
        first, other = rng.standard_normal((2, n))
        second = r * first + math.sqrt(max(1 - r * r, 0.0)) * other
        inputs, outputs = self.input.lengths(_cdf(first)), self.output.lengths(_cdf(second))
        return [Request(0.0, i, o) for i, o in zip(inputs.tolist(), outputs.tolist(), strict=True)]

    def unit_arrivals(self, n: int, gap_cv: float | None, rng: np.random.Generator) -> Floats:
        """n arrivals at a mean rate of 1; recorded ones keep their pattern without ``gap_cv``."""
        if self.recorded and gap_cv is None:
            pattern = recorded_units(np.array([r.arrival_s for r in self.recorded]), n)
            if pattern is not None:
                return pattern
        return unit_arrivals(n, self.gap_cv if gap_cv is None else gap_cv, rng)


def _cdf(z: Floats) -> Floats:
    return np.array([NormalDist().cdf(x) for x in z.tolist()])


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests with arrivals at a mean rate of 1, to be had at any rate."""

    requests: tuple[Request, ...]

    def at(self, rate_per_s: float) -> tuple[Request, ...]:
        """The same requests at this rate; infinite: all at once."""
        return tuple(replace(r, arrival_s=r.arrival_s / rate_per_s) for r in self.requests)


def draw_traffic(workload: Workload, n: int, gap_cv: float | None, seed: int) -> Traffic:
    """n requests at a mean rate of 1; lengths and arrivals have streams of their own."""
    lengths, arrivals = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
    requests = workload.draw(n, lengths)
    units = workload.unit_arrivals(n, gap_cv, arrivals).tolist()
    placed = (replace(r, arrival_s=unit) for r, unit in zip(requests, units, strict=True))
    return Traffic(tuple(placed))


def draw_requests(
    workload: Workload, n: int | None, rate: Rate, gap_cv: float | None, seed: int
) -> tuple[Request, ...]:
    """n requests (None: all recorded ones, else 1000) at a rate.

    Args:
        rate: per second; ``own``: as recorded, or at the workload's own rate, or all at once;
            ``minutes``: at its own rate minute by minute.

    Raises:
        ConfigError: the workload does not know its rate by minute.
    """
    if n is None:
        n = len(workload.recorded) or 1000
    if rate == "own" and gap_cv is None and 0 < n <= len(workload.recorded):
        return workload.recorded[:n]
    traffic = draw_traffic(workload, n, gap_cv, seed)
    if rate == "minutes":
        if not sum(workload.rate_per_s_by_minute):
            raise ConfigError([f"rate: workload {workload.name!r} has no rate by minute"])
        units = np.array([r.arrival_s for r in traffic.requests])
        times = at_rates(units, workload.rate_per_s_by_minute, 60.0).tolist()
        return tuple(replace(r, arrival_s=t) for r, t in zip(traffic.requests, times, strict=True))
    if rate == "own":
        rate = math.inf if workload.rate_per_s is None else workload.rate_per_s
    return traffic.at(rate)


@dataclass(frozen=True, slots=True)
class Phase:
    """A workload at a rate for some seconds."""

    workload: Workload
    rate_per_s: float
    seconds: float


def draw_phases(phases: Sequence[Phase], gap_cv: float | None, seed: int) -> tuple[Request, ...]:
    """The requests of one phase after the other, rate x seconds of each."""
    requests: list[Request] = []
    start_s = 0.0
    for index, phase in enumerate(phases):
        n = max(round(phase.rate_per_s * phase.seconds), 1)
        traffic = draw_traffic(phase.workload, n, gap_cv, seed + index)
        requests += (
            replace(r, arrival_s=start_s + r.arrival_s) for r in traffic.at(phase.rate_per_s)
        )
        start_s += phase.seconds
    return tuple(requests)


def load_workload(spec: str) -> Workload:
    """``NAME``, ``FILE[:NAME]`` (JSON), ``FILE`` (JSONL), ``fixed:IN,OUT`` or ``exponential:IN,OUT``.

    Raises:
        ConfigError: nothing has that name, or the file is wrong at a line and field.
    """
    kind, _, lengths = spec.partition(":")
    if kind in ("fixed", "exponential"):
        return _synthetic(spec, kind, lengths)
    known = named_workloads()
    if spec in known:
        return known[spec]
    path, name = split_spec(spec)
    if path is None:
        raise ConfigError([unknown_key("workload", spec, [*known, "fixed", "exponential"])])
    if path.suffix == ".jsonl":
        return _recorded(path)
    found = _of_file(path)
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None:
        raise ConfigError([f"workload: {path} holds {', '.join(found)}; name one: {path}:NAME"])
    if name not in found:
        raise ConfigError([unknown_key(f"workload: {path}", name, found)])
    return found[name]


def named_workloads() -> dict[str, Workload]:
    """All workloads of ``configs/workloads``."""
    files = sorted(DIRECTORY.glob("*.json"))
    return {name: workload for path in files for name, workload in _of_file(path).items()}


def _synthetic(spec: str, kind: str, lengths: str) -> Workload:
    found = re.fullmatch(r"(\d+),(\d+)", lengths)
    if not found or not int(found[1]) or not int(found[2]):
        raise ConfigError([f"workload: {spec!r} is not allowed: {kind}:IN,OUT, tokens from 1"])
    marginal = Fixed if kind == "fixed" else Exponential
    return Workload(spec, marginal(int(found[1])), marginal(int(found[2])))


def _of_file(path: Path) -> dict[str, Workload]:
    return {name: _of_entry(name, entry) for name, entry in read_workloads(path).items()}


def _of_entry(name: str, entry: QuantileEntry) -> Workload:
    return Workload(
        name,
        Quantiles(entry.quantiles, entry.input_tokens),
        Quantiles(entry.quantiles, entry.output_tokens),
        entry.spearman,
        entry.mean_rate_per_s,
        entry.gap_cv,
        entry.rate_per_s_by_minute,
    )


def _recorded(path: Path) -> Workload:
    requests = read_requests(path)
    span_s = requests[-1].arrival_s - requests[0].arrival_s
    rate = (len(requests) - 1) / span_s if span_s else None
    return Workload(str(path), rate_per_s=rate, recorded=requests)
