"""Reports of a fleet of any size: those of a few engines, recorded and shared out.

The controller gets real reports of engines under load, in wire form; only the replicas' names are
made up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from benchmarks.cost.bare_engine import BareEngine
from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.records import to_wire
from replicas.profiles.profile import StepNoise, StepProfile

Wire = dict[str, Any]

ENGINES = 3  # engines of a group; its replicas share their reports
NOISE_CV = 0.03


@dataclass(frozen=True, slots=True)
class GroupTraffic:
    """One group of the fleet.

    Args:
        share: of the fleet's replicas.
        mean_input, mean_output: tokens.
    """

    name: str
    share: float
    mean_input: float
    mean_output: float


# Half of all replicas in one group: pooling a group is the most expensive part.
TRAFFIC = (
    GroupTraffic("chat", 0.5, 257, 447),
    GroupTraffic("short", 0.25, 257, 62),
    GroupTraffic("long-answers", 0.15, 68, 344),
    GroupTraffic("documents", 0.08, 1500, 200),
    GroupTraffic("small", 0.02, 128, 128),
)


class Fleet:
    """Replicas of several groups that report every ``config.period_s``, evenly spread in time.

    Args:
        periods: reports of each replica.
    """

    def __init__(
        self, replicas: int, config: BatchingConfig, profile: StepProfile, periods: int
    ) -> None:
        self.periods = periods
        self._period_s = config.period_s
        self._members: list[tuple[str, str, list[Wire]]] = []
        for number, (traffic, count) in enumerate(zip(TRAFFIC, _sizes(replicas), strict=True)):
            recorded = [
                _record(config, profile, traffic, periods, seed=ENGINES * number + k)
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
    config: BatchingConfig, profile: StepProfile, traffic: GroupTraffic, periods: int, seed: int
) -> list[Wire]:
    """An engine's reports under full load and its own control loop."""
    noise = StepNoise(NOISE_CV, seed)
    engine = BareEngine(config, profile, noise, traffic.mean_input, traffic.mean_output, seed)
    loop, recorded = ControlLoop(), []
    for period in range(periods):
        while engine.now_s < (period + 1) * config.period_s:
            engine.step()
        report = engine.report("recorded")
        engine.apply(loop.exchange(report, config, engine.now_s))
        recorded.append(msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(report))))
    return recorded


def _sizes(replicas: int) -> list[int]:
    """The replicas of each group; they add up to all."""
    shares = accumulate(traffic.share for traffic in TRAFFIC)
    ends = [0, *(round(replicas * share) for share in shares)]
    return [end - begin for begin, end in pairwise(ends)]


def _scattered(count: int) -> Iterator[int]:
    """0 to ``count`` - 1, neighbours far apart: by the golden ratio."""
    return iter(sorted(range(count), key=lambda index: index * 0.6180339887 % 1))
