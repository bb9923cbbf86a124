"""The plan's capacity versus the replay's, vLLM's own scheduler under `adaptive`."""

import argparse

import pytest

from controller.config import Sla
from simulator.plan.answer import plan_for
from simulator.plan.arguments import add_arguments
from simulator.plan.setting import Setting, resolve
from simulator.replay.capacity import holds_at, search_traffic
from simulator.replay.engine import Scenario
from simulator.replay.verdict import Target
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload

WITHIN = 0.1
RUN_S = 240.0  # of arrivals, at least
# The policy is given p99 and spends its 1% of late tokens to the end, so that a short run is as
# often a hair above it as below, at any rate: what a rate carries is judged at p98.
JUDGED = 98
# Three sources of a plan's step times: the paper's line and rooflines; bound by the SLA
# (two) and by memory (gemma).
SCENARIOS = (
    "llama-2-7b --profile paper-fig3 --workload exponential:257,62",
    "llama-3.1-8b --gpu L4 --tensor-parallel 1 --workload exponential:257,62 --itl 100",
    "gemma-3-27b --gpu H100 --workload exponential:512,128",
)


def arguments(line: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(line.split())


def holds(own: Setting, rate_per_s: float) -> bool:
    """Whether the replay keeps the SLA between tokens at this rate."""
    target = Target(Sla(itl_ms=own.sla.itl_ms, percentile=JUDGED))
    scenario = Scenario(own.profile)
    traffic = search_traffic(load_workload(own.workload), scenario, target, least_run_s=RUN_S)
    policy = parse_policy("adaptive", Sla(itl_ms=own.sla.itl_ms), engine_of(own.profile))
    return holds_at(traffic, policy, scenario, target, rate_per_s)


@pytest.mark.parametrize("line", SCENARIOS)
def test_the_replay_carries_what_the_plan_says(line: str) -> None:
    own = resolve(arguments(line))
    capacity = plan_for(own).capacity_per_s
    assert holds(own, capacity * (1 - WITHIN))
    assert not holds(own, capacity * (1 + WITHIN))
