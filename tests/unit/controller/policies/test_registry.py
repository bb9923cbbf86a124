"""The policies by name, ``static``, and docs/examples/policy.py."""

import runpy
from pathlib import Path
from typing import Any, get_args

import pytest

from controller.config import BatchingConfig
from controller.fleet.loop import ControlLoop
from controller.policies import registry
from controller.policies.base import Decide, Decision
from controller.policies.registry import POLICIES
from replicas.engine.limiter import Limiter
from tests.builders import batching, engine, limits, recent, report, seen, state


def test_the_policies_are_those_that_the_config_allows() -> None:
    assert set(POLICIES) == set(get_args(BatchingConfig.model_fields["policy"].annotation))


@pytest.mark.parametrize(
    ("block", "decision"),
    [
        ({}, Decision(256, "static")),  # the size the engine was started with
        ({"max_running": {"max": 48}}, Decision(48, "static")),
        (
            {"max_running": {"max": 48}, "static": {"max_num_batched_tokens": 72}},
            Decision(48, "static", token_budget=72),
        ),
    ],
)
def test_static_is_what_is_configured(block: dict[str, Any], decision: Decision) -> None:
    known = seen(batching(policy="static", **block), recent=recent(9.0, 256))
    assert POLICIES["static"]({}, known) == (decision, {})


@pytest.mark.parametrize(("reason", "paused"), [("static", True), ("sla", False)])
def test_only_a_step_budget_that_was_set_may_leave_no_block_for_prompts(reason, paused):
    held = limits(max_running=9, token_budget=16, reason=reason)
    step = Limiter(engine(), 1, None).limits(state(), held, lambda n: ())
    assert (step.max_running, step.token_budget, step.may_pause_prefill) == (9, 16, paused)


EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "policy.py"
SLA = {"itl_ms": 50}


@pytest.fixture
def decide() -> Decide:
    found: Decide = runpy.run_path(str(EXAMPLE))["decide"]
    return found


def test_the_control_loop_runs_it(decide: Decide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, "static", decide)
    loop, config = ControlLoop(), batching(policy="static", sla=SLA, max_running={"min": 4})
    found, memory = [], {}
    for n in (1, 2, 3):
        limits = loop.exchange(report(seq=n, memory=memory), config, now_s=n / 2)
        found.append(limits.max_running)
        memory = limits.memory
    assert found == [5, 6, 7]
