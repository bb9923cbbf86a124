"""One trajectory, drawn once, and each policy's result."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from simulator.fleet.capacity import capacity_per_s
from simulator.fleet.days import Day
from simulator.fleet.outcome import SHARE, Outcome
from simulator.fleet.policies import parse_policy
from simulator.fleet.replica_pool import Overflow
from simulator.fleet.simulate import Progress, Scenario, simulate
from simulator.fleet.traffic import Requests, draw
from simulator.workloads.catalog import load_workload

BOUNDS = {"min_replicas": 1, "max_replicas": 40}
FIRST_SHARE = 0.8  # share of their capacity that the first replicas are asked for


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's figures for a day; ``spec`` has the constants."""

    day: str
    policy: str
    spec: str
    attainment: float
    replica_hours: float
    reversals_per_h: float

    @property
    def keeps(self) -> bool:
        """Whether enough requests met the SLA for the hours to count."""
        return self.attainment >= SHARE

    def to_json(self) -> dict[str, Any]:
        """The object that `brimful fleet --json` prints."""
        return asdict(self)


class Trajectory:
    """One trajectory, drawn once and equal for all policies.

    Args:
        overflow: a second group of replicas above a first one that runs all day (which raises the
            least number).
    """

    def __init__(
        self,
        day: Day,
        scenario: Scenario,
        bounds: Mapping[str, int] = BOUNDS,
        overflow: Overflow | None = None,
    ) -> None:
        workload = load_workload(day.workload)
        self.day, self.scenario, self.bounds = day, scenario, dict(bounds)
        self.capacity_per_s = capacity_per_s(workload, scenario)
        rates = day.rates.times(self.capacity_per_s)
        self.requests: Requests = draw(rates, workload, scenario.seed)
        self.overflow = overflow and overflow.sized(day.rates.rate_per_s)
        if self.overflow is not None and self.overflow.base is not None:
            least = min(max(bounds["min_replicas"], self.overflow.base), bounds["max_replicas"])
            bounds = self.bounds = dict(bounds) | {"min_replicas": least}
        first = rates.rate_per_s[0] / self.capacity_per_s / FIRST_SHARE
        least, most = bounds["min_replicas"], bounds["max_replicas"]
        self.replicas = min(max(round(first), least, 1), most)

    def outcome(self, spec: str, progress: Progress = lambda seconds: None) -> Outcome:
        """The outcome under a policy.

        Raises:
            ConfigError: there is no such policy, or one of its settings is wrong.
        """
        policy = parse_policy(spec, self.scenario, self.bounds)
        return simulate(
            self.requests,
            policy.autoscaling,
            self.scenario,
            seconds=self.day.seconds,
            replicas=self.replicas,
            reads=policy.reads,
            overflow=self.overflow,
            progress=progress,
        )

    def result(self, spec: str) -> Result:
        """The outcome under a policy, in figures."""
        return result(self.day, spec, self.outcome(spec))


def result(day: Day, spec: str, outcome: Outcome) -> Result:
    """An outcome in figures."""
    return Result(
        day.name, spec.partition(":")[0], spec, outcome.attainment, outcome.replica_hours,
        outcome.reversals_per_h,
    )  # fmt: skip
