"""``brimful check`` on what Ray Serve would leave out of account without a word."""

from typing import Any

import pytest
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.llm._internal.serve.core.server.builder import _get_deployment_name

from serve_app.autoscaling_block import names_function
from serve_app.checks.scaling import _deployment_name, scaling_problems
from tests.serve_configs import APP, DIRECT, ENTRY, config, entry, put

PLACE = "applications[0].args.llm_configs[0]"
OVERRIDE = "applications[0].deployments[0]"
BLOCK = {"min_replicas": 1, "max_replicas": 5}


def override(**options: Any) -> dict[str, Any]:
    return put(config(), (*APP, "deployments"), [{"name": "BrimfulServer:m", **options}])


def test_an_override_without_a_policy_would_bring_rays_own_back(check):
    (found,) = check(override(autoscaling_config=BLOCK)).problems
    assert found.startswith(f"{OVERRIDE}.autoscaling_config: takes the place of the entry's whole")
    assert "a target of 2 ongoing requests" in found


@pytest.mark.parametrize("policy", [{}, {"policy_kwargs": {"late_frac": 0.01}}])
def test_nor_does_a_policy_without_a_function_name_one(check, policy):
    (found,) = check(override(autoscaling_config=BLOCK | {"policy": policy})).problems
    assert found.startswith(f"{OVERRIDE}.autoscaling_config: takes the place")
    at = (*ENTRY, "deployment_config", "autoscaling_config", "policy")
    (found,) = check(put(config(), at, policy)).problems
    assert found.startswith(f"{PLACE}.deployment_config.autoscaling_config.policy: {policy}")
    assert "names no policy_function" in found


def test_a_fixed_entry_that_an_override_makes_scale_would_bring_rays_own(check):
    auto = override(num_replicas="auto")
    assert check(auto, DIRECT).problems == []  # Ray Serve keeps the entry's policy
    fixed = put(auto, (*ENTRY, "deployment_config"), {"num_replicas": 2})
    (found,) = check(fixed, DIRECT).problems
    assert found.startswith(f"{OVERRIDE}.num_replicas: auto, and the entry's")


def test_where_rays_own_would_come_back_in_two_ways_one_is_told(check):
    both = override(num_replicas="auto", autoscaling_config={"max_replicas": 3})
    fixed = put(both, (*ENTRY, "deployment_config"), {"num_replicas": 2})
    (found,) = check(fixed, DIRECT).problems
    assert found.startswith(f"{OVERRIDE}.autoscaling_config: takes the place")


@pytest.mark.parametrize("deployment", [{"num_replicas": "auto"}, {"autoscaling_config": BLOCK}])
@pytest.mark.parametrize("block", [{}, None])
def test_auto_over_an_entry_that_scales_keeps_its_policy(check, deployment, block):
    auto = override(num_replicas="auto", autoscaling_config=block)
    assert not check(put(auto, (*ENTRY, "deployment_config"), deployment), DIRECT).problems


def test_an_override_is_held_against_the_entry_of_its_own_model():
    other = entry() | {
        "model_loading_config": {"model_id": "other", "model_source": "x"},
        "deployment_config": {"num_replicas": 2},
    }
    for name, problems in (("BrimfulServer:m", 0), ("BrimfulServer:other", 1)):
        found = scaling_problems(
            [{"name": name, "num_replicas": "auto"}], [entry(), other], "deployments"
        )
        assert len(found) == problems


@pytest.mark.parametrize("policy", [{}, None, {"policy_function": ""}, {"policy_function": None}])
def test_what_is_empty_names_no_function(policy):
    assert not names_function(policy)


def test_a_deployment_may_have_a_name_of_its_own(check):
    own = override(name="BrimfulServer:mine", autoscaling_config=BLOCK)
    assert "no deployment of this application" in check(own, DIRECT).problems[0]
    named = put(own, (*ENTRY, "deployment_config", "name"), "mine")
    assert len(check(named, DIRECT).problems) == 1


def test_what_is_no_mapping_and_what_has_no_model_are_told_and_no_more(check):
    odd = put(override(), (*APP, "deployments"), [None, {"name": None}, 3])
    del odd["applications"][0]["args"]["llm_configs"][0]["model_loading_config"]
    problems = check(odd, DIRECT).problems
    assert problems and not [line for line in problems if "takes the place" in line]


@pytest.mark.parametrize(
    "deployment", [{"num_replicas": "auto"}, {"autoscaling_config": BLOCK}, {}]
)
def test_a_number_of_replicas_over_an_entry_that_scales_is_told_to_have_no_effect(
    check, deployment
):
    def notes(**options):
        asked = put(override(**options), (*ENTRY, "deployment_config"), deployment)
        return [note for note in check(asked, DIRECT).notes if "num_replicas" in note]

    (note,) = notes(num_replicas=5)
    assert note.startswith(f"{OVERRIDE}.num_replicas: 5 has no effect")
    assert not notes(num_replicas=5, autoscaling_config=None)
    assert not notes(num_replicas="auto")


def test_another_number_over_a_fixed_one_is_as_good(check):
    five = put(override(num_replicas=5), (*ENTRY, "deployment_config"), {"num_replicas": 2})
    found = check(five, DIRECT)
    assert not found.problems and not [note for note in found.notes if "num_replicas" in note]


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
    assert check(put(config(), (*APP, "autoscaling_policy"), policy), DIRECT).notes == [
        "applications[0].autoscaling_policy: decides in the place of each model's; scaling has no"
        " effect"
    ]


def test_a_target_of_ongoing_requests_is_told_to_have_no_effect(check):
    target = (*ENTRY, "deployment_config", "autoscaling_config", "target_ongoing_requests")
    assert check(put(config(), target, 40), DIRECT).notes == [
        f"{PLACE}.deployment_config.autoscaling_config.target_ongoing_requests: has no effect;"
        " replicas follow scaling.target_utilization, of the capacity that is measured"
    ]
    theirs = put(config(), (*target[:-1], "policy"), {"policy_function": "math:floor"})
    assert not [n for n in check(put(theirs, target, 40), DIRECT).notes if "target_" in n]


def test_requests_that_ray_serve_holds_back_from_the_engine_are_told(check):
    few = put(config(), (*ENTRY, "deployment_config", "max_ongoing_requests"), 32)
    assert check(few, DIRECT).notes == [
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
