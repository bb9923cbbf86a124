"""Reports of a fleet of any size: those of a few engines, recorded and shared out.

The controller gets real reports of engines under load, in wire form; only the replicas' names are
made up.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from controller.records import to_wire
from replicas.profiles.disturbances import Disturbances
from replicas.profiles.profile import StepProfile
from simulator.replay.engine import Engine, uncollected
from simulator.virtual.plan import Plan
from simulator.virtual.scenario import Scenario
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

Wire = dict[str, Any]

ENGINES = 3  # engines of a group; its replicas share their reports
NOISE_CV = 0.03
QUEUED = 1500  # requests at the beginning: more than an engine serves


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """One group of the fleet.

    Args:
        share: of the fleet's replicas.
    """

    name: str
    share: float
    workload: str


# Half of all replicas in one group: pooling a group is the most expensive part.
TRAFFIC = (
    GroupTraffic("chat", 0.5, "exponential:257,447"),
    GroupTraffic("short", 0.25, "exponential:257,62"),
    GroupTraffic("long-answers", 0.15, "exponential:68,344"),
    GroupTraffic("documents", 0.08, "exponential:1500,200"),
    GroupTraffic("small", 0.02, "exponential:128,128"),
)


class Fleet:
    """Replicas of several groups that report every ``period_s``, evenly spread in time.

    Args:
        periods: reports of each replica.
    """

    def __init__(self, replicas: int, plan: Plan, profile: StepProfile, periods: int) -> None:
        self.periods = periods
        self._period_s = plan.batching.period_s
        self._members: list[tuple[str, str, list[Wire]]] = []
        for number, (traffic, count) in enumerate(zip(TRAFFIC, _sizes(replicas), strict=True)):
            recorded = [
                _record(plan, profile, traffic, periods, seed=ENGINES * number + k)
                for k in range(min(count, ENGINES))
            ]
            self._members += [
                (traffic.name, f"{traffic.name}-{k}", recorded[k % ENGINES]) for k in range(count)
            ]

    def __len__(self) -> int:
        return len(self._members)

    def reports(self, period: int) -> Iterator[tuple[float, Wire]]:
        """All replicas' reports of one period: the time of each, seconds, and the report."""
        # Ordered by group, all replicas of a group would report at once.
        for place, index in enumerate(_scattered(len(self))):
            group, replica_id, recorded = self._members[index]
            at_s = (period + place / len(self)) * self._period_s
            yield at_s, {**recorded[period], "replica_id": replica_id, "group": group}


def _record(
    plan: Plan, profile: StepProfile, traffic: GroupTraffic, periods: int, seed: int
) -> list[Wire]:
    """An engine's reports under full load, with its own control loop."""
    requests = draw_requests(load_workload(traffic.workload), QUEUED, math.inf, None, seed)
    scenario = Scenario(profile, Disturbances(noise_cv=NOISE_CV), seed)
    engine, recorded = Engine(requests, plan, scenario), list[Wire]()
    for number, request in enumerate(requests):
        engine.send(number, request, 0.0)
    with uncollected():
        while len(recorded) < periods:
            if engine.begin_turn() and engine.now_s >= (len(recorded) + 1) * plan.batching.period_s:
                report = msgspec.msgpack.encode(to_wire(engine.report))
                recorded.append(msgspec.msgpack.decode(report))
            engine.end_turn()
    return recorded


def _sizes(replicas: int) -> list[int]:
    """The replicas of each group; they add up to all."""
    shares = accumulate(traffic.share for traffic in TRAFFIC)
    ends = [0, *(round(replicas * share) for share in shares)]
    return [end - begin for begin, end in pairwise(ends)]


def _scattered(count: int) -> Iterator[int]:
    """0 to ``count`` - 1, neighbours far apart: by the golden ratio."""
    return iter(sorted(range(count), key=lambda index: index * 0.6180339887 % 1))
