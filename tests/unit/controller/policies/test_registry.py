"""The policies by name, and ``static``, the simplest of them."""

from typing import get_args

import pytest

from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.policies.base import EMPTY_BATCH, Decision
from controller.policies.registry import POLICIES, STEP_HALVES, make_policy, make_step_half
from tests.builders import batching, engine, limits, pool, recent, report, state


def test_the_policies_are_those_that_the_config_allows() -> None:
    assert set(POLICIES) == set(get_args(BatchingConfig.model_fields["policy"].annotation))
    assert set(POLICIES) == set(STEP_HALVES)


@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_is_made_with_state_of_its_own(name: str) -> None:
    config = batching(policy=name)
    assert isinstance(make_policy(config), type(make_policy(config)))
    assert make_policy(config) is not make_policy(config)


def test_static_is_the_size_the_engine_was_started_with() -> None:
    static = make_policy(batching(policy="static"))
    slow = report(recent=recent(9.0, 256))
    assert static.fleet(slow, pool(), 0) == Decision(256, "static")


def test_static_is_the_configured_bound_where_there_is_one() -> None:
    static = make_policy(batching(policy="static", max_running={"max": 48}))
    assert static.fleet(report(), pool(), 0) == Decision(48, "static")


def test_static_has_the_configured_step_budget_beside_its_cap() -> None:
    block = {"max_running": {"max": 48}, "static": {"max_num_batched_tokens": 72}}
    static = make_policy(batching(policy="static", **block))
    assert static.fleet(report(), pool(), 0) == Decision(48, "static", token_budget=72)


@pytest.mark.parametrize(("policy", "paused"), [("static", True), ("paper", False)])
def test_only_a_step_budget_that_was_set_may_leave_no_block_for_prompts(
    policy: str, paused: bool
) -> None:
    follow = make_step_half(batching(policy=policy), engine())
    step = follow.limits(state(), lambda: EMPTY_BATCH, limits(max_running=9, token_budget=16))
    assert (step.token_budget, step.may_pause_prefill) == (16, paused)


def test_static_refuses_a_bound_above_the_engines_size() -> None:
    static = make_policy(batching(policy="static", max_running={"max": 512}))
    with pytest.raises(ConfigError, match="512 is above max_num_seqs=256"):
        static.fleet(report(), pool(), 0)


def test_static_follows_what_was_pushed() -> None:
    make_policy(batching(policy="static")).forget("r1")
    follow = make_step_half(batching(policy="static"), engine())
    step = follow.limits(state(), lambda: EMPTY_BATCH, limits(max_running=9))
    assert (step.max_running, step.token_budget, step.reason) == (9, 2048, None)
