"""``brimful check`` on keys that nobody reads: place and nearest valid key of each."""

from typing import Any

import pytest

from controller.validation import join
from tests.serve_configs import APP, ENTRY, config, put, unknown

PLACE = join("", ENTRY)
UNKNOWN_KEYS = [
    (("proxy_locaton",), "proxy_location"),
    (("http_options", "prt"), "port"),
    (("logging_config", "log_lvel"), "log_level"),
    ((*APP, "route_prefx"), "route_prefix"),
    ((*APP, "runtime_env", "env_var"), "env_vars"),
    ((*APP, "args", "llm_config"), "llm_configs"),
    ((*APP, "args", "ingress_deployment_config", "num_replica"), "num_replicas"),
    ((*ENTRY, "batchin"), "batching"),
    ((*ENTRY, "acelerator_type"), "accelerator_type"),
    ((*ENTRY, "model_loading_config", "model_sorce"), "model_source"),
    ((*ENTRY, "deployment_config", "max_queud_requests"), "max_queued_requests"),
    ((*ENTRY, "deployment_config", "autoscaling_config", "max_replica"), "max_replicas"),
    (
        (*ENTRY, "deployment_config", "autoscaling_config", "policy", "policy_kwarg"),
        "policy_kwargs",
    ),
    ((*ENTRY, "deployment_config", "ray_actor_options", "num_cpu"), "num_cpus"),
    ((*ENTRY, "deployment_config", "ray_actor_options", "runtime_env", "env_var"), "env_vars"),
    (
        (*ENTRY, "deployment_config", "request_router_config", "request_router_clas"),
        "request_router_class",
    ),
    ((*ENTRY, "engine_kwargs", "max_num_seq"), "max_num_seqs"),
    ((*ENTRY, "engine_kwargs", "enable_auto_tool_choic"), "enable_auto_tool_choice"),
    ((*ENTRY, "engine_kwargs", "compilation_config", "cudagraph_mod"), "cudagraph_mode"),
    (
        (*ENTRY, "engine_kwargs", "speculative_config", "num_speculative_token"),
        "num_speculative_tokens",
    ),
    ((*ENTRY, "batching", "sla", "itl_msec"), "itl_ms"),
    ((*ENTRY, "batching", "max_running", "maxx"), "max"),
    ((*ENTRY, "batching", "paper", "epsilon_d"), "epsilon_d_ms"),
    ((*ENTRY, "scaling", "drain"), "drain_s"),
    ((*ENTRY, "runtime_env", "working_dr"), "working_dir"),
    ((*ENTRY, "lora_config", "max_num_adapter_per_replica"), "max_num_adapters_per_replica"),
    ((*ENTRY, "callback_config", "callback_clas"), "callback_class"),
]


@pytest.mark.parametrize(("path", "nearest"), UNKNOWN_KEYS, ids=lambda v: join("", v)[-40:])
def test_an_unknown_key_is_named_with_its_place_and_the_nearest(check, path, nearest):
    place = join("", path[:-1]) or "top level"

    # A policy that has nothing but a wrong key has no function either.
    problems = [p for p in check(put(config(), path, {})).problems if "policy_function" not in p]
    assert problems == [unknown(place, path[-1], nearest)]


def test_an_unknown_key_inside_a_tagged_union_is_found_by_the_tag(check):
    data = put(config(), (*ENTRY, "accelerator_config"), {"kind": "gpu", "topology": "2x2"})

    assert check(data).problems == [
        f"{PLACE}.accelerator_config: unknown key 'topology'; allowed: kind"
    ]


def test_an_unknown_key_in_a_deployment_override_is_an_error(check):
    data = put(
        config(), (*APP, "deployments"), [{"name": "BrimfulServer:m", "max_queud_requests": 1}]
    )

    assert check(data).problems == [
        unknown("applications[0].deployments[0]", "max_queud_requests", "max_queued_requests")
    ]


def test_an_unknown_key_in_a_placement_group_is_an_error(check):
    data = put(
        config(),
        (*ENTRY, "placement_group_config"),
        {"bundle_per_worker": {"GPU": 1, "accelerator_type:H100": 0.001}, "strateg": "PACK"},
    )

    assert check(data).problems == [
        unknown(f"{PLACE}.placement_group_config", "strateg", "strategy")
    ]


FREE = [
    (*APP, "runtime_env", "env_vars", "ANY_NAME"),
    (*ENTRY, "runtime_env", "env_vars", "ANY_NAME"),
    (*ENTRY, "deployment_config", "ray_actor_options", "resources", "any"),
    (*ENTRY, "engine_kwargs", "hf_overrides", "any"),
    (*ENTRY, "engine_kwargs", "additional_config", "any"),
    (*ENTRY, "engine_kwargs", "limit_mm_per_prompt", "any"),
    (*ENTRY, "experimental_configs", "any"),
]


@pytest.mark.parametrize("path", FREE, ids=lambda path: join("", path[:-1])[-40:])
def test_free_mappings_stay_free(check, path):
    value: Any = "1" if "env_vars" in path else 1

    assert check(put(config(), path, value)).problems == []
