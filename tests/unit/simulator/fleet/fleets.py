"""A small scenario, and requests by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ray.serve.config import AutoscalingContext

from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile
from simulator.fleet.fluid import Engine, Fleet, make_fleet, occupy
from simulator.fleet.simulate import Scenario
from simulator.fleet.traffic import Requests

PROFILE = StepProfile("line", "", 100_000, 64, 1000, LinearCost(0.02, 0.0005, 0.0, 0.0001))
SLA = Sla(itl_ms=50, ttft_ms=1000)
SCENARIO = Scenario(PROFILE, SLA, startup_s=20.0, tick_s=5.0)


def requests(*each: tuple[float, int, int]) -> Requests:
    """Requests from (arrival in s, prompt tokens, output tokens)."""
    return Requests(*(np.array(column) for column in zip(*each, strict=True)))


def steadily(per_s: float, seconds: float, prompt: int, output: int) -> Requests:
    n = int(per_s * seconds)
    return Requests(np.arange(n) / per_s, np.full(n, prompt), np.full(n, output))


def standing(asked: Requests, replicas: int, slots: Sequence[int] = ()) -> tuple[Fleet, Engine]:
    engine = SCENARIO.engine(asked)
    fleet = make_fleet(asked, max(replicas, 4), engine, 0)
    for slot in slots or range(replicas):
        occupy(fleet, slot, 0.0)
    return fleet, engine


class Script:
    """Asks for so many replicas at these times."""

    def __init__(self, times: list[float], counts: list[int]) -> None:
        self.times, self.counts = times, counts

    def __call__(self, ctx: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        now_s = ctx.current_time or 0.0
        passed = [c for t, c in zip(self.times, self.counts, strict=True) if t <= now_s]
        return passed[-1], {}


def scripted(*steps: tuple[float, int]) -> dict[str, Any]:
    times, counts = zip(*steps, strict=True)
    kwargs = {"times": list(times), "counts": list(counts)}
    return {
        "min_replicas": 0,
        "max_replicas": 8,
        "upscale_delay_s": 0,
        "downscale_delay_s": 0,
        "policy": {"policy_function": f"{__name__}:Script", "policy_kwargs": kwargs},
    }
