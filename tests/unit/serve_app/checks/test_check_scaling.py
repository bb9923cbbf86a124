"""``brimful check`` on what Ray Serve would leave out of account without a word."""

from typing import Any

import pytest
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.core.server.builder import _get_deployment_name

from serve_app.checks.scaling import _deployment_name
from tests.serve_configs import DIRECT, PLACE, entry, having

OVERRIDE = "applications[0].deployments[0]"
REPLACED = f"{OVERRIDE}.autoscaling_config: takes the place of the entry's whole"
BLOCK = {"min_replicas": 1, "max_replicas": 5}
AUTO = "deployment_config.autoscaling_config"
FIXED, SCALES = {"num_replicas": 2}, {"autoscaling_config": BLOCK}


def override(deployment: Any = None, **options: Any) -> dict[str, Any]:
    data = having("/deployments", [{"name": "BrimfulServer:m", **options}])
    return data if deployment is None else having("deployment_config", deployment, data)


@pytest.mark.parametrize(
    "data",
    [
        override(autoscaling_config=BLOCK),
        *[
            override(autoscaling_config=BLOCK | {"policy": policy})
            for policy in ({}, {"policy_kwargs": {"late_frac": 0.01}})
        ],
        # It is told once where it would come back in two ways.
        override(FIXED, num_replicas="auto", autoscaling_config={"max_replicas": 3}),
    ],
)
def test_an_override_without_a_policy_would_bring_rays_own_back(check, data):
    (found,) = check(data, DIRECT).problems
    assert found.startswith(REPLACED)
    assert "a target of 2 ongoing requests" in found


def test_nor_does_an_entrys_policy_without_a_function_name_one(check):
    policy = {}
    (found,) = check(having(f"{AUTO}.policy", policy)).problems
    assert found.startswith(f"{PLACE}.{AUTO}.policy: {policy}")
    assert "names no policy_function" in found


def test_a_fixed_entry_that_an_override_makes_scale_would_bring_rays_own(check):
    assert check(override(num_replicas="auto"), DIRECT).problems == []  # it keeps the entry's
    (found,) = check(override(FIXED, num_replicas="auto"), DIRECT).problems
    assert found.startswith(f"{OVERRIDE}.num_replicas: auto, and the entry's")


@pytest.mark.parametrize("block", [{}, None])
def test_auto_over_an_entry_that_scales_keeps_its_policy(check, block):
    auto = override({"num_replicas": "auto"}, num_replicas="auto", autoscaling_config=block)
    assert not check(auto, DIRECT).problems


def test_a_deployment_may_have_a_name_of_its_own(check):
    own = override(name="BrimfulServer:mine", autoscaling_config=BLOCK)
    assert "no deployment of this application" in check(own, DIRECT).problems[0]
    assert len(check(having("deployment_config.name", "mine", own), DIRECT).problems) == 1


@pytest.mark.parametrize(
    ("deployment", "options", "told"),
    [
        *[
            (deployment, options, told)
            for deployment in ({"num_replicas": "auto"}, SCALES, {})
            for options, told in (
                ({"num_replicas": 5}, True),
                ({"num_replicas": 5, "autoscaling_config": None}, False),
                ({"num_replicas": "auto"}, False),
            )
        ],
        (FIXED, {"num_replicas": 5}, False),
    ],
)
def test_a_number_of_replicas_over_an_entry_that_scales_is_told_to_have_no_effect(
    check, deployment, options, told
):
    found = check(override(deployment, **options), DIRECT)
    notes = [note for note in found.notes if "num_replicas" in note]
    assert [note.partition(" has")[0] for note in notes] == [f"{OVERRIDE}.num_replicas: 5"] * told
    assert deployment != FIXED or not found.problems


@pytest.mark.parametrize(
    "options",
    [
        {"max_ongoing_requests": 4096},
        {"name": "LLMRouter", "autoscaling_config": BLOCK},
        {"autoscaling_config": BLOCK | {"policy": {"policy_function": "math:floor"}}},
    ],
)
def test_other_overrides_stay(check, options):
    assert check(override(**options), DIRECT).problems == []


def test_a_policy_for_the_whole_application_is_told(check):
    policy = {"policy_function": "math:floor"}
    assert check(having("/autoscaling_policy", policy), DIRECT).notes == [
        "applications[0].autoscaling_policy: decides in the place of each model's; scaling has no"
        " effect"
    ]


def test_a_target_of_ongoing_requests_is_told_to_have_no_effect(check):
    target = having(f"{AUTO}.target_ongoing_requests", 40)
    assert check(target, DIRECT).notes == [
        f"{PLACE}.{AUTO}.target_ongoing_requests: has no effect; replicas follow"
        " scaling.target_utilization, of the capacity that is measured"
    ]
    theirs = having(f"{AUTO}.policy", {"policy_function": "math:floor"}, target)
    assert not [note for note in check(theirs, DIRECT).notes if "target_" in note]


def test_requests_that_ray_serve_holds_back_from_the_engine_are_told(check):
    assert check(having("deployment_config.max_ongoing_requests", 32), DIRECT).notes == [
        f"{PLACE}.deployment_config.max_ongoing_requests: 32 is below batching.max_running.max"
        " (64): no more requests reach the engine, and the rest wait outside it, in no order of"
        " priorities. Capacity and autoscaling go by it"
    ]
    assert check(override(max_ongoing_requests=64), DIRECT).notes == []
    (note,) = check(override(max_ongoing_requests=63), DIRECT).notes
    assert note.startswith(f"{OVERRIDE}.max_ongoing_requests: 63 is below")


def test_a_deployment_is_named_as_ray_serve_llm_names_it():
    loading = {"model_id": "org/m-0.5", "model_source": "x"}
    named = _get_deployment_name(LLMConfig(model_loading_config=loading))
    assert _deployment_name(entry() | {"model_loading_config": loading}) == named
