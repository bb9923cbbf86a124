"""What ``brimful check`` finds in the Ray containers of a manifest: switches, cards."""

import pytest
import yaml

from serve_app.checks.findings import DIRECT_STREAMING, HA_PROXY
from tests.manifests import (
    HEAD,
    HEAD_PLACE,
    SERVE_PLACE,
    WORKER,
    WORKER_PLACE,
    WORKERS,
    set_env,
    with_serve,
)
from tests.serve_configs import ENTRY, put, refused


@pytest.mark.parametrize("switch", [HA_PROXY, DIRECT_STREAMING])
@pytest.mark.parametrize(
    ("container", "place"), [(HEAD, HEAD_PLACE), (WORKER, WORKER_PLACE)], ids=["head", "worker"]
)
def test_a_ray_container_without_a_switch_is_named(check, service, switch, container, place):
    found = check(set_env(service, container, **{switch: None})).problems

    assert found == [
        f'{place}.env: {switch} is missing; set it to "1" for direct streaming, the default way'
        ' in, or to "0" for the plain ingress'
    ]


def test_a_worker_that_differs_from_the_head_is_named(check, service):
    assert check(set_env(service, WORKER, **{DIRECT_STREAMING: "0"})).problems == [
        refused(f"{WORKER_PLACE}.env.{DIRECT_STREAMING}", "0", 'the head has "1": must be the same')
    ]


def test_a_switch_takes_zero_or_one(check, service):
    assert check(set_env(service, WORKER, **{HA_PROXY: "true"})).problems == [
        refused(f"{WORKER_PLACE}.env.{HA_PROXY}", "true", 'must be "0" or "1"')
    ]


def test_the_plain_ingress_is_an_explicit_choice(check, service):
    off = {HA_PROXY: "0", DIRECT_STREAMING: "0"}

    assert check(set_env(set_env(service, HEAD, **off), WORKER, **off)).problems == []


def test_a_switch_that_may_come_from_elsewhere_is_noted(check, service):
    open_env = put(service, (*WORKER, "envFrom"), [{"configMapRef": {"name": "ray"}}])
    found = check(set_env(open_env, WORKER, **{HA_PROXY: None}))

    assert found.problems == []
    assert found.notes == [
        f"{WORKER_PLACE}.env: {HA_PROXY} has to come from envFrom, which is not read"
    ]


def test_the_heads_environment_decides_what_direct_streaming_allows(check, service):
    entry = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"][0]["args"]
    second = put(entry["llm_configs"][0], ("model_loading_config", "model_id"), "other")
    two = with_serve(service, ENTRY[:-1], [entry["llm_configs"][0], second])

    (problem,) = check(two).problems
    assert problem.startswith(
        f"{SERVE_PLACE}.applications[0].args.llm_configs: direct streaming takes one model"
    )


def test_a_card_that_the_autoscaler_cannot_know_is_noted(check, service):
    typed = with_serve(service, (*ENTRY, "accelerator_type"), "H100")
    found = check(typed)

    assert found.problems == []
    (note,) = found.notes
    assert note.startswith(f"{SERVE_PLACE}: accelerator_type 'H100' needs workers that offer")
    offering = {"resources": '"{\\"accelerator_type:H100\\": 1}"'}
    assert check(put(typed, (*WORKERS, "rayStartParams"), offering)).notes == []


@pytest.mark.parametrize("env", [True, "RAY", 3])
def test_an_env_that_is_no_list_is_named(check, service, env):
    found = check(put(service, (*WORKER, "env"), env)).problems

    assert refused(f"{WORKER_PLACE}.env", env, "must be a list") in found
