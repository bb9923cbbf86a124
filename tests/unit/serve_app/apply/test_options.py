"""The number of replicas that is sent, held against what Ray Serve makes of it."""

import copy
from typing import Any

import pytest
from ray.serve._private.application_state import get_app_code_version, override_deployment_info
from ray.serve._private.deployment_info import DeploymentInfo
from ray.serve.schema import ServeApplicationSchema

from serve_app.apply.changes import Changes, changes, of_deployment
from serve_app.checks.built import build_model
from serve_app.config import ray_llm_config
from tests.serve_configs import config, put
from tests.serve_configs import entry as one_entry

pytestmark = pytest.mark.usefixtures("quick_pickle")
MODEL = "BrimfulServer:m"
Data = dict[str, Any]
BOUNDS = {"min_replicas": 1, "max_replicas": 4}
DEPLOYMENTS: dict[str, Data] = {
    "unsaid": {},
    "three": {"num_replicas": 3},
    "auto": {"num_replicas": "auto"},
    "auto within bounds": {"num_replicas": "auto", "autoscaling_config": BOUNDS},
    "bounds": {"autoscaling_config": BOUNDS},
    "a policy": {"autoscaling_config": {**BOUNDS, "policy": {"policy_function": "os.path:join"}}},
    "no scaling": {"autoscaling_config": None},
    "no number": {"num_replicas": None},
    "open requests": {"num_replicas": 3, "max_ongoing_requests": 9},
}
PAIRS = [(old, new) for old in DEPLOYMENTS for new in DEPLOYMENTS]


def entry(deployment: Data) -> Data:
    return {**one_entry(), "deployment_config": copy.deepcopy(deployment)}


def app(deployment: Data, override: Data | None = None) -> Data:
    made: Data = config(entry(deployment))["applications"][0]
    return {**made, "deployments": [{"name": MODEL, **override}]} if override else made


@pytest.fixture(scope="module")
def built() -> dict[str, DeploymentInfo]:
    """The deployment of each, as the app builder makes it."""
    found = {}
    for name, one in DEPLOYMENTS.items():
        deployment = build_model(entry(one), ray_llm_config(entry(one))).deployment
        found[name] = DeploymentInfo(
            deployment._deployment_config, deployment._replica_config, 0, "01"
        )
    return found


def in_force(built: DeploymentInfo, application: Data) -> Data:
    """The options that Ray Serve goes by; its number counts if nothing scales."""
    schema = ServeApplicationSchema.model_validate(application)
    made = override_deployment_info({MODEL: built}, schema)[MODEL].deployment_config
    assert made.autoscaling_config or made.num_replicas
    return of_deployment(made)


def new_code(before: Data, after: Data) -> bool:
    """Whether Ray Serve starts every replica anew."""
    first, second = map(ServeApplicationSchema.model_validate, (before, after))
    return get_app_code_version(first) != get_app_code_version(second)


def live(change: Changes, before: Data) -> bool:
    """Whether no replica starts anew, which is held against Ray Serve's own word."""
    assert bool(change.restarts) == new_code(before, change.application)
    return not change.restarts


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_what_is_sent_makes_of_the_old_deployment_the_new_one(
    old: str, new: str, built: Any
) -> None:
    before, after = app(DEPLOYMENTS[old]), app(DEPLOYMENTS[new])
    change = changes(before, after)
    wanted = in_force(built[new], after)
    assert in_force(built[old], change.application) == wanted
    differs = wanted != in_force(built[old], before)
    assert bool(change.live or change.restarts) == differs
    if live(change, before):
        again = changes(change.application, after)
        assert (again.live, again.restarts) == ([], [])
        back = changes(change.application, before)
        assert in_force(built[old], back.application) == in_force(built[old], before)


@pytest.mark.parametrize(
    ("override", "is_live"),
    [
        ({"autoscaling_config": {"max_replicas": 6}}, True),
        ({"autoscaling_config": {"max_replicas": 4}, "num_replicas": "auto"}, True),
        ({"autoscaling_config": {"max_replicas": 4, "policy": {"policy_function": "os.path:join"}}},
         False),
        ({"num_replicas": 3}, False),
        ({}, False),
    ],
    ids=str,
)  # fmt: skip
def test_bounds_change_live_beside_a_policy_that_is_sent_already(
    override: Data, is_live: bool, built: Any
) -> None:
    bounds = DEPLOYMENTS["bounds"]
    before = app(bounds, {"autoscaling_config": {"max_replicas": 5}})
    change = changes(before, app(bounds, override))
    assert live(change, before) == is_live
    if is_live:
        wanted = in_force(built["bounds"], app(bounds, override))
        assert in_force(built["bounds"], change.application) == wanted
    # Another change does not take along what is sent.
    other = put(before, ("args", "llm_configs", 0, "batching", "sla", "itl_ms"), 80)
    assert live(changes(before, other), before)


def test_no_policy_is_imported() -> None:
    there = {"autoscaling_config": {"policy": {"policy_function": "only_in_the_cluster:decide"}}}
    assert changes(app(there), app(there, {"max_queued_requests": 5})).restarts == []
