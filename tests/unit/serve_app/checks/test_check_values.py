"""``brimful check`` on wrong values: place, value and what is allowed, of each."""

from pathlib import Path

import pytest

from controller.validation import join
from serve_app.checks.findings import Target
from tests.serve_configs import APP, ENTRY, config, put, refused

ARGS = "applications[0].args"
PLACE = f"{ARGS}.llm_configs[0]"
DEPLOYMENT = f"{PLACE}.deployment_config"
ENGINE = f"{PLACE}.engine_kwargs"
SECURITY = (*APP, "args", "security")
VALUES = [
    (
        SECURITY,
        {"extra_paths": ["tokenize"]},
        f"{ARGS}.security.extra_paths: ['tokenize'] is not allowed: 'tokenize': a path"
        " ('/tokenize'), with a method before it ('POST /tokenize') or with all below it"
        " ('/v1/audio/*'); methods: DELETE, GET, HEAD, PATCH, POST, PUT",
    ),
    (
        SECURITY,
        {"extra_path": []},
        f"{ARGS}.security: unknown key 'extra_path'; did you mean 'extra_paths'?",
    ),
    (
        (*APP, "args", "secrity"),
        {},
        f"{ARGS}: unknown key 'secrity'; did you mean 'security'?",
    ),
    (
        (*ENTRY, "batching", "sla", "itl_ms"),
        0,
        refused(f"{PLACE}.batching.sla.itl_ms", 0, "Input should be greater than 0"),
    ),
    (
        (*ENTRY, "batching", "max_running", "max"),
        65,
        f"{PLACE}.batching.max_running.max: 65 is above max_num_seqs=64, the size the engine is"
        " started with; lower it or raise max_num_seqs",
    ),
    (
        (*ENTRY, "batching", "policy"),
        "papr",
        refused(
            f"{PLACE}.batching.policy", "papr", "Input should be 'static', 'paper' or 'adaptive'"
        ),
    ),
    (
        (*ENTRY, "scaling", "target_utilization"),
        1.5,
        refused(
            f"{PLACE}.scaling.target_utilization", 1.5, "Input should be less than or equal to 1"
        ),
    ),
    (
        (*ENTRY, "engine_kwargs", "max_num_seqs"),
        "64",
        refused(f"{ENGINE}.max_num_seqs", "64", "must be of type int"),
    ),
    (
        (*ENTRY, "engine_kwargs", "enforce_eager"),
        "false",
        refused(f"{ENGINE}.enforce_eager", "false", "must be of type bool"),
    ),
    (
        (*ENTRY, "engine_kwargs", "gpu_memory_utilization"),
        1.5,
        refused(f"{ENGINE}.gpu_memory_utilization", 1.5, "Input should be less than or equal to 1"),
    ),
    (
        (*ENTRY, "engine_kwargs", "enable_chunked_prefill"),
        False,
        f"{ENGINE}.enable_chunked_prefill: False is not allowed with batching.sla.itl_ms: a step is"
        " kept short by the chunk of a prompt it computes, and without chunks a prompt longer than"
        " that would never start; allowed: true, or no batching.sla.itl_ms",
    ),
    (
        (*ENTRY, "engine_kwargs", "scheduling_policy"),
        "lifo",
        refused(f"{ENGINE}.scheduling_policy", "lifo", "Input should be 'fcfs' or 'priority'"),
    ),
    (
        (*ENTRY, "engine_kwargs", "attention_backend"),
        "FLASH_ATTNN",
        refused(f"{ENGINE}.attention_backend", "FLASH_ATTNN", "did you mean 'FLASH_ATTN'?"),
    ),
    (
        (*ENTRY, "engine_kwargs", "max_num_batched_tokens"),
        32,
        f"{ENGINE}: max_num_batched_tokens (32) must be greater than or equal to max_num_seqs"
        " (64).",
    ),
    (
        (*ENTRY, "engine_kwargs", "scheduler_cls"),
        "my.Scheduler",
        refused(
            f"{ENGINE}.scheduler_cls",
            "my.Scheduler",
            "Brimful sets it to 'replicas.scheduler.DynamicBatchScheduler'; leave the key out",
        ),
    ),
    (
        (*ENTRY, "engine_kwargs", "additional_config"),
        {"brimful": {}},
        f"{ENGINE}.additional_config.brimful: is made from the batching block; leave it out",
    ),
    ((*ENTRY, "engine_kwargs"), [], f"{ENGINE}: must be a mapping, got []"),
    ((*ENTRY, "runtime_env"), True, f"{PLACE}.runtime_env: must be a mapping, got True"),
    (
        (*ENTRY, "runtime_env"),
        {"env_vars": True},
        refused(f"{PLACE}.runtime_env.env_vars", True, "it must be a mapping"),
    ),
    (
        (*ENTRY, "server_cls"),
        "my:Server",
        refused(
            f"{PLACE}.server_cls",
            "my:Server",
            "Brimful sets it to 'replicas.server:BrimfulServer'; leave the key out, or serve this"
            " model by import_path: ray.serve.llm:build_openai_app, without our blocks",
        ),
    ),
    (
        (*ENTRY, "accelerator_type"),
        "H1000",
        refused(f"{PLACE}.accelerator_type", "H1000", "Unsupported accelerator type: H1000"),
    ),
    (
        (*ENTRY, "deployment_config", "num_replicas"),
        2,
        f"{DEPLOYMENT}: Manually setting num_replicas is not allowed when autoscaling_config is"
        " provided.",
    ),
    (
        (*ENTRY, "deployment_config", "max_queued_requests"),
        0,
        f"{DEPLOYMENT}: max_queued_requests must be -1 (no limit) or a positive integer.",
    ),
    (
        (*ENTRY, "deployment_config", "autoscaling_config", "target_ongoing_requests"),
        -1,
        refused(
            f"{DEPLOYMENT}.autoscaling_config.target_ongoing_requests",
            -1,
            "Input should be greater than 0",
        ),
    ),
    (
        (*ENTRY, "deployment_config", "autoscaling_config", "min_replicas"),
        4,
        f"{DEPLOYMENT}.autoscaling_config: max_replicas (3) must be greater than or equal to"
        " min_replicas (4)!",
    ),
    (
        (*ENTRY, "deployment_config", "request_router_config"),
        {"request_router_class": "no_such_module.Router"},
        f"{DEPLOYMENT}.request_router_config: ModuleNotFoundError: No module named"
        " 'no_such_module'",
    ),
    (
        (*ENTRY, "deployment_config", "placement_group_strategy"),
        "PACK",
        f"{DEPLOYMENT}.placement_group_strategy: Ray Serve LLM computes it; set"
        " placement_group_config instead",
    ),
    (
        (*ENTRY, "placement_group_config"),
        {"bundle_per_worker": {"GPU": -1}},
        refused(
            f"{PLACE}.placement_group_config.bundle_per_worker.GPU",
            -1,
            "Input should be greater than or equal to 0",
        ),
    ),
    (
        (*ENTRY, "model_loading_config"),
        {"model_source": "org/m"},
        f"{PLACE}.model_loading_config.model_id: required key is missing",
    ),
    (
        (*APP, "args", "llm_configs"),
        [],
        f"{ARGS}.llm_configs: must be a list with at least one model, got []",
    ),
    (
        (*APP, "args", "llm_configs"),
        [3],
        f"{ARGS}.llm_configs[0]: must be a mapping or the path of one, got 3",
    ),
    (
        (*APP, "route_prefix"),
        "llm",
        refused(
            "applications[0].route_prefix",
            "llm",
            'Got "llm" for route_prefix. Route prefix must start with "/".',
        ),
    ),
    (
        (*APP, "deployments"),
        [{"name": "AdmissionIngress", "autoscaling_config": {"min_replicas": -1}}],
        refused(
            "applications[0].deployments[0].autoscaling_config.min_replicas",
            -1,
            "Input should be greater than or equal to 0",
        ),
    ),
    (("applications",), 3, refused("applications", 3, "Input should be a valid list")),
]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    VALUES,
    ids=lambda v: join("", v)[-40:] if isinstance(v, tuple) else "",
)
def test_a_wrong_value_is_named_with_its_place(check, path, value, message):
    assert check(put(config(), path, value)).problems == [message]


@pytest.mark.parametrize("source", ["/no/such/model", "./no-such-model", "../no-such", ".cache/no"])
def test_a_model_folder_that_is_not_here_may_be_on_the_nodes(check, source):
    data = put(config(), (*ENTRY, "model_loading_config", "model_source"), source)

    place = f"{PLACE}.model_loading_config.model_source"
    found = check(data)
    assert found.problems == []
    assert found.notes == [
        f"{place}: {source!r}: no such folder here (looked in {Path(source).resolve()}); every node"
        " that runs a replica needs it"
    ]
    assert check(data, Target(env={}, local_paths=False)).notes == []


def test_a_folder_that_holds_no_model_is_named(check, tmp_path):
    data = put(config(), (*ENTRY, "model_loading_config", "model_source"), str(tmp_path))

    place = f"{PLACE}.model_loading_config.model_source"
    assert check(data).problems == [
        refused(place, str(tmp_path), "it holds no config.json or params.json")
    ]


def test_draft_model_and_tokenizer_folders_are_looked_for(check):
    data = put(config(), (*ENTRY, "engine_kwargs", "speculative_config"), {"model": "/no/draft"})
    data = put(data, (*ENTRY, "model_loading_config", "tokenizer_source"), "/no/tokenizer")

    assert [note.split(": ")[0] for note in check(data).notes] == [
        f"{PLACE}.model_loading_config.tokenizer_source",
        f"{PLACE}.engine_kwargs.speculative_config.model",
    ]


@pytest.mark.parametrize("deployments", [5, True, 1.5])
def test_deployments_that_are_no_list_are_named(check, deployments):
    (problem,) = check(put(config(), (*APP, "deployments"), deployments)).problems
    assert problem.startswith("applications[0].deployments: ")


def test_a_deployment_that_is_no_mapping_is_named(check):
    assert check(
        put(config(), (*APP, "deployments"), [5, {"name": "BrimfulServer:m"}, None])
    ).problems == [
        "applications[0].deployments[0]: must be a mapping, got 5",
        "applications[0].deployments[2]: must be a mapping, got nothing",
    ]


def test_keys_of_several_types_are_named(check):
    data = put(config(), (*ENTRY, "engine_kwargs"), {"hf_overrides": {1: 2, "a": 3}})
    place = f"{ENGINE}.hf_overrides"
    assert {line.partition(": ")[0] for line in check(data).problems} == {f"{place}[1]", place}


@pytest.mark.parametrize("source", ["/" + "z" * 300, "./" + "z" * 300])
def test_a_model_whose_name_no_folder_can_have_is_named(check, source):
    data = put(config(), (*ENTRY, "model_loading_config", "model_source"), source)
    (problem,) = check(data).problems
    assert f"{source!r} is not allowed: File name too long" in problem
