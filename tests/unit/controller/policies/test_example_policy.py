"""The policy that CONTRIBUTING.md shows: docs/examples/policy.py."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.policies import registry
from controller.policies.base import Decide, Memory
from tests.builders import batching, recent, report, seen

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "policy.py"
SLA = {"itl_ms": 50}


@pytest.fixture
def decide() -> Decide:
    found: Decide = runpy.run_path(str(EXAMPLE))["decide"]
    return found


def caps(decide: Decide, config: BatchingConfig, reports: list[dict[str, Any]]) -> list[int]:
    memory: Memory = {}
    found = []
    for said in reports:
        decision, memory = decide(memory, seen(config, **said))
        found.append(decision.max_running)
    return found


def test_its_cap_rises_by_one_and_falls_by_a_fifth(decide: Decide) -> None:
    config = batching(policy="static", sla=SLA, max_running={"min": 10})
    inside, beyond = ({"recent": recent(itl_s, 10), "waiting": 5} for itl_s in (0.04, 0.06))
    assert caps(decide, config, [inside, inside, beyond]) == [11, 12, 10]  # 12 x 0.8 < B_min


def test_it_stays_inside_the_bounds_and_rises_only_where_requests_wait(decide: Decide) -> None:
    config = batching(policy="static", max_running={"min": 2, "max": 3})
    assert caps(decide, config, [{"waiting": 0}, *[{"waiting": 5}] * 3]) == [2, 3, 3, 3]


def test_the_control_loop_runs_it(decide: Decide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, "static", decide)
    loop, config = ControlLoop(), batching(policy="static", sla=SLA, max_running={"min": 4})
    found, memory = [], {}
    for n in (1, 2, 3):
        limits = loop.exchange(report(seq=n, memory=memory), config, now_s=n / 2)
        found.append(limits.max_running)
        memory = limits.memory
    assert found == [5, 6, 7]
