"""The policies by name, and ``static``, the simplest of them."""

from typing import Any, get_args

import pytest

from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.policies.base import Decision
from controller.policies.registry import POLICIES
from replicas.engine.limiter import Limiter
from tests.builders import batching, engine, limits, recent, seen, state


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


def test_static_refuses_a_bound_above_the_engines_size() -> None:
    with pytest.raises(ConfigError, match="512 is above max_num_seqs=256"):
        POLICIES["static"]({}, seen(batching(policy="static", max_running={"max": 512})))
