"""A small ground, and requests by hand."""

from collections.abc import Sequence

import numpy as np

from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile
from simulator.fleet.simulate import Ground
from simulator.fleet.state import Engine, Fleet, make_fleet, occupy
from simulator.fleet.traffic import Requests

PROFILE = StepProfile("line", "", 100_000, 64, 1000, LinearCost(0.02, 0.0005, 0.0, 0.0001))
SLA = Sla(itl_ms=50, ttft_ms=1000)
GROUND = Ground(PROFILE, SLA, startup_s=20.0, tick_s=5.0)


def requests(*each: tuple[float, int, int]) -> Requests:
    """Requests from (arrival in s, prompt tokens, output tokens)."""
    return Requests(*(np.array(column) for column in zip(*each, strict=True)))


def steadily(per_s: float, seconds: float, prompt: int, output: int) -> Requests:
    n = int(per_s * seconds)
    return Requests(np.arange(n) / per_s, np.full(n, prompt), np.full(n, output))


def standing(asked: Requests, replicas: int, slots: Sequence[int] = ()) -> tuple[Fleet, Engine]:
    engine = GROUND.engine(asked)
    fleet = make_fleet(asked, max(replicas, 4), engine, 0)
    for slot in slots or range(replicas):
        occupy(fleet, slot, 0.0)
    return fleet, engine
