"""Rates over a day, from a file, and arrays of requests with these rates."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from configs import shipped
from controller.config import Block
from controller.data_file import read_json
from controller.errors import ConfigError
from simulator.workloads.lengths import Floats
from simulator.workloads.traffic import Workload

DAY_S = 86400.0
POOL = 50_000  # requests whose lengths are drawn; a day samples from them
# A larger CV of a step is due to one client's pause, which the fleet never saw.
MOST_GAP_CV = 13.0


class Requests(NamedTuple):
    """Requests in order of arrival: seconds, and tokens."""

    arrival_s: Floats
    input: NDArray[np.int64]
    output: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rates:
    """Requests per second over time, linear between the middles of equal steps.

    Args:
        rate_per_s: of each step, from 0.
        gap_cv: coefficient of variation of the gaps between arrivals, for each step.
    """

    step_s: float
    rate_per_s: tuple[float, ...]
    gap_cv: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return self.step_s * len(self.rate_per_s)

    def times(self, factor: float) -> "Rates":
        """These rates times ``factor``."""
        return replace(self, rate_per_s=tuple(r * factor for r in self.rate_per_s))

    def at(self, time_s: Floats) -> Floats:
        """The rate at these times."""
        middles = (np.arange(len(self.rate_per_s)) + 0.5) * self.step_s
        return np.interp(time_s, middles, self.rate_per_s)

    def arrivals_s(self, rng: np.random.Generator) -> Floats:
        """Arrival times: Gamma gaps in the integrated rate, with each step's CV."""
        fine_s = np.linspace(0.0, self.seconds, 10 * len(self.rate_per_s) + 1)
        rate = self.at(fine_s)
        summed = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2 * np.diff(fine_s))])
        parts, at = [], 0.0
        for step, cv in enumerate(self.gap_cv):
            until = summed[10 * (step + 1)]
            cv = min(cv or 1.0, MOST_GAP_CV)
            while at < until:
                # Gamma gaps with mean 1.
                gaps = rng.gamma(1 / cv**2, cv**2, int(until - at) + 100)
                found = at + np.cumsum(gaps)
                # The first one beyond the step is an arrival, too; the next step continues from it.
                found = found[: int(np.searchsorted(found, until)) + 1]
                parts.append(found)
                at = float(found[-1])
        units = np.concatenate(parts) if parts else np.zeros(0)
        return np.interp(units[units < summed[-1]], summed, fine_s)


def draw(rates: Rates, workload: Workload, seed: int) -> Requests:
    """Requests with these rates and the workload's lengths; their number is random.

    Raises:
        ConfigError: no request arrives.
    """
    lengths, arrivals, order = (
        np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)
    )
    times = rates.arrivals_s(arrivals)
    if not len(times):
        raise ConfigError(["traffic: not one request comes: every rate is 0, or nearly"])
    pool = workload.source.draw(POOL, lengths)
    taken = order.integers(0, POOL, len(times))
    inputs = np.array([r.input_tokens for r in pool], dtype=np.int64)
    outputs = np.array([r.output_tokens for r in pool], dtype=np.int64)
    return Requests(times, inputs[taken], outputs[taken])


class RatesEntry(Block):
    """A service's rates: one value for each step of equal length, without gaps.

    Args:
        gap_cv: of the gaps between arrivals; 0 or none: Poisson.
    """

    source: str = ""
    step_s: Annotated[float, Field(ge=1, le=DAY_S)]
    rate_per_s: tuple[Annotated[float, Field(ge=0, le=1e6)], ...] = Field(min_length=1)
    gap_cv: tuple[Annotated[float, Field(ge=0, le=1e6)], ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.gap_cv and len(self.gap_cv) != len(self.rate_per_s):
            raise ValueError(
                f"gap_cv has {len(self.gap_cv)} values, rate_per_s {len(self.rate_per_s)}"
            )
        if not any(self.rate_per_s):
            raise ValueError("rate_per_s is 0 in every step")
        if len(self.rate_per_s) * self.step_s > DAY_S and DAY_S % self.step_s:
            raise ValueError(
                f"step_s is {self.step_s:g}, which does not divide a day: rates of more than a day "
                "are cut into days, so it has to divide 86400"
            )
        return self

    def rates(self) -> Rates:
        """The rates for the simulation."""
        gap_cv = self.gap_cv or (1.0,) * len(self.rate_per_s)
        return Rates(self.step_s, self.rate_per_s, gap_cv)


class RatesFile(Block):
    """The format of ``configs/traffic/days.json``."""

    note: str = ""
    traffic: dict[str, RatesEntry] = Field(min_length=1)


def read_rates(path: Path) -> dict[str, Rates]:
    """The rates of a file, by name.

    Raises:
        ConfigError: naming the line and field that is wrong: a gap (null), a negative rate, no row.
    """
    return {name: entry.rates() for name, entry in read_json(path, RatesFile).traffic.items()}


def by_day(rates: Rates) -> list[Rates]:
    """The rates cut into days; the last part of a day stays."""
    steps = max(1, math.floor(DAY_S / rates.step_s))
    return [
        Rates(rates.step_s, rates.rate_per_s[k : k + steps], rates.gap_cv[k : k + steps])
        for k in range(0, len(rates.rate_per_s), steps)
    ]


def shipped_rates() -> Path:
    """The file with the fourteen days."""
    return shipped("traffic") / "days.json"
