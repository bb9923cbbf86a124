"""A fleet through its day: fluid replicas, Ray Serve's autoscaling, start-ups and drains."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from controller.config import Sla
from controller.models.step_time import StepModel
from replicas.profiles.profile import StepProfile
from simulator.fleet.fluid import Engine, engine_of, make_fleet
from simulator.fleet.outcome import Outcome
from simulator.fleet.published import Publisher, learnt
from simulator.fleet.ray_stages import Clock, RayAutoscaler
from simulator.fleet.replica_pool import Overflow, ReplicaPool
from simulator.fleet.traffic import Requests

AFTER_S = 300.0  # after the last arrival; requests that have not ended by then are missed
Progress = Callable[[float], object]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The scenario that all policies of a comparison share.

    Args:
        startup_s: from the decision until a replica takes requests.
        tick_s: between two samples, each followed by a decision; Ray Serve's controller decides
            every 0.1 s, with samples every few seconds.
        max_ongoing: Ray Serve's ``max_ongoing_requests`` of one replica.
    """

    profile: StepProfile
    sla: Sla
    startup_s: float = 100.0
    tick_s: float = 5.0
    max_ongoing: int = 4096
    seed: int = 0

    def engine(self, requests: Requests) -> Engine:
        """One replica's engine; it knows how much a running request will still grow."""
        return engine_of(
            self.profile,
            self.sla,
            mean_growth=float(requests.output.mean()) / 2,
            max_ongoing=self.max_ongoing,
        )

    def model(self, requests: Requests, engine: Engine) -> StepModel:
        """The step-time model that a Governor would have learned from these requests."""
        return learnt(self.profile, engine, 32, float(requests.input.mean()))


def simulate(
    requests: Requests,
    autoscaling: Mapping[str, Any],
    scenario: Scenario,
    *,
    seconds: float,
    replicas: int,
    reads: tuple[str, ...] | None = None,
    overflow: Overflow | None = None,
    progress: Progress = lambda seconds: None,
) -> Outcome:
    """The outcome of these requests, and of the fleet, under this ``autoscaling_config``.

    Args:
        replicas: ready at the beginning.
        reads: names of metrics that the policy reads; None: all.
        overflow: a second group of replicas; None: there is one group.
        progress: called with the virtual seconds that have passed.
    """
    clock = Clock()
    scaler = RayAutoscaler(autoscaling, replicas, clock)
    engine = scenario.engine(requests)
    fleet = make_fleet(requests, 2 * scaler.config.max_replicas + 8, engine, scenario.seed)
    model = scenario.model(requests, engine)
    pool = ReplicaPool(fleet, engine, scenario.startup_s, scaler.target, overflow, scenario.seed)
    publisher = Publisher(fleet, engine, scenario.sla, model, reads=reads)
    ticks = math.ceil(seconds / scenario.tick_s)
    targets, ready = np.zeros(ticks, dtype=np.int64), np.zeros(ticks, dtype=np.int64)
    for tick in range(ticks):
        clock.now_s = (tick + 1) * scenario.tick_s
        pool.work_until(clock.now_s)
        scaler.observe(publisher.sample(pool.names, clock.now_s), float(fleet.hold[2]))
        pool.scale_to(scaler.decide(), clock.now_s)
        targets[tick], ready[tick] = scaler.target, pool.ready
        if tick % 200 == 199:
            progress(200 * scenario.tick_s)
    base_s, overflow_s = pool.replica_s(clock.now_s)
    pool.work_until(clock.now_s + AFTER_S)
    return Outcome(
        requests, fleet.first_s, fleet.end_s, targets, ready, base_s + overflow_s, scenario.tick_s,
        scenario.sla, overflow_s, pool.lost,
    )  # fmt: skip
