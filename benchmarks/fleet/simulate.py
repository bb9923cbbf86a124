"""A fleet through its day: the fluid replicas, Ray Serve's autoscaling, start-ups and drains."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.fleet import fluid
from benchmarks.fleet.outcome import Outcome
from benchmarks.fleet.published import Publisher, learnt
from benchmarks.fleet.ray_stages import Clock, RayAutoscaler
from benchmarks.fleet.state import (
    ABSENT,
    DRAINING,
    NOBODY,
    READY,
    Engine,
    Fleet,
    engine_of,
    make_fleet,
    occupy,
)
from benchmarks.fleet.traffic import Requests
from controller.config import Sla
from controller.models.step_time import StepModel
from replicas.profile import StepProfile

AFTER_S = 300.0  # after the last arrival, to end what runs; what has not ended by then is missed
Progress = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class Ground:
    """What all policies of a comparison stand on.

    Args:
        startup_s: from the decision until a replica takes requests.
        tick_s: between two samples, each followed by a decision; Ray Serve's controller decides
            every 0.1 s, on samples that come every few seconds.
        max_ongoing: Ray Serve's ``max_ongoing_requests`` of one replica.
    """

    profile: StepProfile
    sla: Sla
    startup_s: float = 100.0
    tick_s: float = 5.0
    max_ongoing: int = 4096
    seed: int = 0

    def engine(self, requests: Requests) -> Engine:
        """One replica's engine; it has learnt how much a running request is still to grow."""
        return engine_of(
            self.profile,
            self.sla,
            mean_growth=float(requests.output.mean()) / 2,
            max_ongoing=self.max_ongoing,
        )

    def model(self, requests: Requests, engine: Engine) -> StepModel:
        """The step-time model that a Governor would have learnt by these requests."""
        return learnt(self.profile, engine, 32, float(requests.input.mean()))


def simulate(
    requests: Requests,
    autoscaling: Mapping[str, Any],
    ground: Ground,
    *,
    seconds: float,
    replicas: int,
    reads: tuple[str, ...] | None = None,
    progress: Progress = lambda seconds: None,
) -> Outcome:
    """What became of these requests and of the fleet under this ``autoscaling_config``.

    Args:
        replicas: ready at the beginning.
        reads: names of metrics that the policy reads; None: it is given all.
        progress: told the virtual seconds that have passed, now and then.
    """
    clock = Clock()
    scaler = RayAutoscaler(autoscaling, replicas, clock)
    engine = ground.engine(requests)
    crew = _Crew(requests, engine, ground, 2 * scaler.config.max_replicas + 8, scaler.target)
    publisher = Publisher(
        crew.fleet, engine, ground.sla, ground.model(requests, engine), reads=reads
    )
    ticks = math.ceil(seconds / ground.tick_s)
    targets, ready = np.zeros(ticks, dtype=np.int64), np.zeros(ticks, dtype=np.int64)
    for tick in range(ticks):
        clock.now_s = (tick + 1) * ground.tick_s
        crew.work_until(clock.now_s)
        scaler.observe(publisher.sample(crew.names, clock.now_s), float(crew.fleet.hold[2]))
        crew.scale_to(scaler.decide(), clock.now_s)
        targets[tick], ready[tick] = scaler.target, crew.ready
        if tick % 200 == 199:
            progress(200 * ground.tick_s)
    replica_s = crew.replica_s(clock.now_s)
    crew.work_until(clock.now_s + AFTER_S)
    return Outcome(
        requests, crew.fleet.first_s, crew.fleet.end_s, targets, ready, replica_s, ground.tick_s,
        ground.sla,
    )  # fmt: skip


class _Crew:
    """The replicas: those that start, serve, and drain."""

    def __init__(
        self, requests: Requests, engine: Engine, ground: Ground, slots: int, replicas: int
    ) -> None:
        self.fleet: Fleet = make_fleet(requests, slots, engine, ground.seed)
        self.names: dict[int, str] = {}
        self._engine, self._startup_s = engine, ground.startup_s
        self._since: dict[int, float] = {}  # by slot: when it was started
        self._starting: list[float] = []  # when each was started, the oldest first
        self._spent_s = 0.0
        self._born = 0
        for _ in range(replicas):
            self._open(0.0, 0.0)

    @property
    def ready(self) -> int:
        return int((self.fleet.status == READY).sum())

    def work_until(self, until_s: float) -> None:
        while self._starting and self._starting[0] + self._startup_s <= until_s:
            began_s = self._starting.pop(0)
            ready_s = began_s + self._startup_s
            fluid.run_until(self.fleet, self._engine, ready_s)
            self._open(began_s, ready_s)
        fluid.run_until(self.fleet, self._engine, until_s)
        for slot in [s for s in self._since if self.fleet.status[s] == ABSENT]:
            self._spent_s += until_s - self._since.pop(slot)
            del self.names[slot]

    def scale_to(self, target: int, now_s: float) -> None:
        """As Ray Serve: starts are called off first; those with the least to do are drained."""
        fleet, missing = self.fleet, target - self.ready - len(self._starting)
        self._starting += [now_s] * max(missing, 0)
        for _ in range(max(-missing, 0)):
            if self._starting:
                self._spent_s += now_s - self._starting.pop()
                continue
            ready = np.flatnonzero(fleet.status == READY)
            busy = fleet.decodes[ready] + fleet.waiting[ready] + (fleet.prompt[ready] != NOBODY)
            fleet.status[int(ready[int(busy.argmin())])] = DRAINING

    def replica_s(self, now_s: float) -> float:
        """What all replicas have taken until now, from the decision to start to the end."""
        running = sum(now_s - since_s for since_s in self._since.values())
        return self._spent_s + running + sum(now_s - since_s for since_s in self._starting)

    def _open(self, since_s: float, now_s: float) -> None:
        slot = next(s for s in range(len(self.fleet.status)) if s not in self._since)
        occupy(self.fleet, slot, now_s)
        self._since[slot] = since_s
        self._born += 1
        self.names[slot] = f"r{self._born}"
