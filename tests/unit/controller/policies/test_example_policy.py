"""The policy that CONTRIBUTING.md shows: docs/examples/policy.py."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from controller.fleet.loop import ControlLoop
from controller.policies import registry
from tests.builders import batching, pool, recent, report

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "policy.py"
SLA = {"itl_ms": 50}


@pytest.fixture
def policy_class() -> Any:
    return runpy.run_path(str(EXAMPLE))["AimdPolicy"]


def test_its_cap_rises_by_one_and_falls_by_a_fifth(policy_class: Any) -> None:
    policy = policy_class(batching(policy="static", sla=SLA, max_running={"min": 10}))
    inside, beyond = (report(recent=recent(itl_s, 10), waiting=5) for itl_s in (0.04, 0.06))
    caps = [policy.fleet(seen, pool(), 0.0).max_running for seen in (inside, inside, beyond)]
    assert caps == [11, 12, 10]  # 12 x 0.8 is below B_min


def test_it_stays_inside_the_bounds_and_rises_only_where_requests_wait(policy_class: Any) -> None:
    policy = policy_class(batching(policy="static", max_running={"min": 2, "max": 3}))
    idle, busy = report(waiting=0), report(waiting=5)
    caps = [policy.fleet(seen, pool(), 0.0).max_running for seen in (idle, busy, busy, busy)]
    assert caps == [2, 3, 3, 3]
    policy.forget("r1")
    assert policy.fleet(idle, pool(), 0.0).max_running == 2


def test_the_control_loop_runs_it(policy_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, "static", policy_class)
    loop, config = ControlLoop(), batching(policy="static", sla=SLA, max_running={"min": 4})
    limits = [loop.exchange(report(seq=n), config, now_s=n / 2) for n in (1, 2, 3)]
    assert [one.max_running for one in limits] == [5, 6, 7]
