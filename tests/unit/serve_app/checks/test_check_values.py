"""``brimful check`` on wrong values and unknown keys: place, value and what is allowed, of each."""

from pathlib import Path
from typing import Any

import pytest

from serve_app.checks.findings import Target
from tests.serve_configs import ARGS, PLACE, having, place, refused, unknown

DEPLOYMENT = f"{PLACE}.deployment_config"
ENGINE = f"{PLACE}.engine_kwargs"
AUTO = "deployment_config.autoscaling_config"
OPTIONS = "deployment_config.ray_actor_options"
MODEL = "model_loading_config"
REFUSED: list[tuple[str, Any, str]] = [
    ("batching.sla.itl_ms", 0, "Input should be greater than 0"),
    ("scaling.peak_s", 600,
     "it was removed, nothing is given up before 300 s are known; leave it out"),
    ("batching.policy", "papr", "Input should be 'static', 'paper' or 'adaptive'"),
    ("engine_kwargs.max_num_seqs", "64", "must be of type int"),
    ("engine_kwargs.enforce_eager", "false", "must be of type bool"),
    ("engine_kwargs.scheduling_policy", "lifo", "Input should be 'fcfs' or 'priority'"),
    ("engine_kwargs.attention_backend", "FLASH_ATTNN", "did you mean 'FLASH_ATTN'?"),
    ("engine_kwargs.tool_call_parser", "hermess", "did you mean 'hermes'?"),
    ("engine_kwargs.enable_auto_tool_choice", True,
     "enable_auto_tool_choice requires tool_call_parser"),
    ("runtime_env.env_vars", True, "it must be a mapping"),
    ("accelerator_type", "H1000", "Unsupported accelerator type: H1000"),
    ("/route_prefix", "llm", 'Got "llm" for route_prefix. Route prefix must start with "/".'),
    ("//applications", 3, "Input should be a valid list"),
    (f"{OPTIONS}.resources.fast_disk", "1", "Input should be a valid number"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "why"), REFUSED)
def test_a_value_that_is_not_allowed_is_named_with_its_place(check, path, value, why):
    assert check(having(path, value)).problems == [refused(place(path), value, why)]


SAID: list[tuple[str, Any, str]] = [
    ("/args.security", {"extra_paths": ["tokenize"]},
     f"{ARGS}.security.extra_paths: ['tokenize'] is not allowed: 'tokenize': a path"
     " ('/tokenize'), with a method before it ('POST /tokenize') or with all below it"
     " ('/v1/audio/*'); methods: DELETE, GET, HEAD, PATCH, POST, PUT"),
    ("engine_kwargs.enable_chunked_prefill", False,
     f"{ENGINE}.enable_chunked_prefill: False is not allowed with batching.sla.itl_ms: a step is"
     " kept short by the chunk of a prompt it computes, and without chunks a prompt longer than"
     " that would never start; allowed: true, or no batching.sla.itl_ms"),
    ("engine_kwargs.max_num_batched_tokens", 32,
     f"{ENGINE}: max_num_batched_tokens (32) must be greater than or equal to max_num_seqs"
     " (64)."),
    ("engine_kwargs.additional_config", {"brimful": {}},
     f"{ENGINE}.additional_config.brimful: is made from the batching block; leave it out"),
    ("engine_kwargs.model", "org/other",
     f"{PLACE}: ValueError: model or served_model_name is not allowed in engine_kwargs when"
     " using Ray Serve LLM. Please use `model_loading_config` in LLMConfig instead."),
    ("engine_kwargs", [], f"{ENGINE}: must be a mapping, got []"),
    ("runtime_env", True, f"{PLACE}.runtime_env: must be a mapping, got True"),
    ("deployment_config.num_replicas", 2,
     f"{DEPLOYMENT}: Manually setting num_replicas is not allowed when autoscaling_config is"
     " provided."),
    (f"{AUTO}.min_replicas", 4,
     f"{DEPLOYMENT}.autoscaling_config: max_replicas (3) must be greater than or equal to"
     " min_replicas (4)!"),
    ("deployment_config.request_router_config", {"request_router_class": "no_such_module.Router"},
     f"{DEPLOYMENT}.request_router_config: ModuleNotFoundError: No module named"
     " 'no_such_module'"),
    (MODEL, {"model_source": "m"}, f"{PLACE}.{MODEL}.model_id: required key is missing"),
    ("/args.llm_configs", [3],
     f"{PLACE}: 3 is not allowed: a mapping, the path of one, or LLMConfig"),
    (
        "/deployments",
        [{"name": "AdmissionIngress", "autoscaling_config": {"min_replicas": -1}}],
        refused(
            "applications[0].deployments[0].autoscaling_config.min_replicas",
            -1,
            "Input should be greater than or equal to 0",
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "line"), SAID)
def test_a_wrong_value_is_one_line(check, path, value, line):
    assert check(having(path, value)).problems == [line]


BEGINS: list[tuple[str, Any, str]] = [
    ("engine_kwargs.data_parallel_size", 4, f"{ENGINE}.data_parallel_size: 4 is not allowed"),
    ("/deployments", 5, "applications[0].deployments: "),
    ("runtime_env.env_vars", ["A=1"], f"{PLACE}.runtime_env.env_vars: "),
    ("runtime_env", {"pip": ["a"], "uv": ["b"]}, f"{PLACE}.runtime_env: ValueError: "),
    ("runtime_env.working_dir", "./src", f"{PLACE}.runtime_env: ValueError: src is not"),
    ("runtime_env.config", {"setup_timeout_seconds": "1"},
     f"{PLACE}.runtime_env: TypeError: setup_timeout_seconds must be"),
    (f"{OPTIONS}.resources", {"GPU": 1},
     f"{DEPLOYMENT}: ValueError: Use the 'num_cpus'"),
    (f"{OPTIONS}.num_gpus", 1.5,
     f"{PLACE}: a bundle of a replica's placement group comes to 2.5 GPUs, and vLLM takes"),
    ("placement_group_config", {"bundle_per_worker": {"GPU": 1, "disk": "1"}},
     f"{PLACE}.placement_group_config.bundle_per_worker: Resource 'disk' must be a number"),
    ("/deployments", [{"name": "BrimfulServer:m", "placement_group_bundles": [{"CPU": 0}]}],
     "applications[0].deployments[0]: ValueError: Bundles cannot be an empty dictionary"),
    (
        "/deployments",
        [
            {
                "name": "BrimfulServer:m",
                "placement_group_bundles": [{"CPU": 1}],
                "placement_group_strategy": "STRICT",
            }
        ],
        "applications[0].deployments[0]: ValueError: Invalid placement group strategy STRICT.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "begins"), BEGINS)
def test_what_ray_refuses_only_when_it_places_a_replica_is_named(check, path, value, begins):
    (problem,) = check(having(path, value)).problems
    assert problem.startswith(begins)


UNKNOWN = [
    ("//proxy_locaton", "proxy_location"),
    ("//http_options.prt", "port"),
    ("/route_prefx", "route_prefix"),
    ("/args.llm_config", "llm_configs"),
    ("/args.security.extra_path", "extra_paths"),
    ("batchin", "batching"),
    (f"{MODEL}.model_sorce", "model_source"),
    ("deployment_config.max_queud_requests", "max_queued_requests"),
    (f"{AUTO}.policy.policy_kwarg", "policy_kwargs"),
    (f"{OPTIONS}.num_cpu", "num_cpus"),
    ("deployment_config.request_router_config.request_router_clas", "request_router_class"),
    ("engine_kwargs.max_num_seq", "max_num_seqs"),
    ("engine_kwargs.enable_auto_tool_choic", "enable_auto_tool_choice"),
    ("engine_kwargs.compilation_config.cudagraph_mod", "cudagraph_mode"),
    ("batching.sla.itl_msec", "itl_ms"),
    ("scaling.drain", "drain_s"),
    ("runtime_env.working_dr", "working_dir"),
    ("lora_config.max_num_adapter_per_replica", "max_num_adapters_per_replica"),
    ("callback_config.callback_clas", "callback_class"),
    ("router.prefix_char", "prefix_chars"),
    ("placement_group_config.strateg", "strategy"),
    ("/deployments.0.max_queud_requests", "max_queued_requests"),
]


@pytest.mark.parametrize(("path", "nearest"), UNKNOWN)
def test_an_unknown_key_is_named_with_its_place_and_the_nearest(check, path, nearest):
    data = None
    if path.startswith("/deployments"):
        data = having("/deployments", [{"name": "BrimfulServer:m"}])
    if path.startswith("placement"):
        bundle = {"GPU": 1, "accelerator_type:H100": 0.001}
        data = having("placement_group_config.bundle_per_worker", bundle)
    above, _, key = place(path).rpartition(".")
    # A policy that has nothing but a wrong key has no function either.
    found = [p for p in check(having(path, {}, data)).problems if "policy_function" not in p]
    assert found == [unknown(above or "top level", key, nearest)]


def test_an_unknown_key_inside_a_tagged_union_is_found_by_the_tag(check):
    data = having("accelerator_config", {"kind": "gpu", "topology": "2x2"})
    assert check(data).problems == [
        f"{PLACE}.accelerator_config: unknown key 'topology'; allowed: kind"
    ]


ENV = [
    "/runtime_env",
    "runtime_env",
    f"{OPTIONS}.runtime_env",
    "/args.ingress_deployment_config.ray_actor_options.runtime_env",
    "/deployments.0.ray_actor_options.runtime_env",
    "//controller_options.runtime_env",
]
FREE = [
    *[f"{path}.env_vars.ANY_NAME" for path in ENV[:2]],
    f"{OPTIONS}.resources.any",
    "engine_kwargs.hf_overrides.any",
    "engine_kwargs.additional_config.any",
    "engine_kwargs.limit_mm_per_prompt.any",
    "experimental_configs.any",
]


@pytest.mark.parametrize("path", FREE)
def test_free_mappings_stay_free(check, path):
    assert check(having(path, "1" if "env_vars" in path else 1)).problems == []


@pytest.mark.parametrize("value", [1, None], ids=str)
@pytest.mark.parametrize("path", ENV)
def test_a_variable_that_is_no_text_is_named_wherever_it_stands(check, path, value):
    data = having("/deployments", [{"name": "BrimfulServer:m"}])
    found = check(having(path, {"env_vars": {"OMP_NUM_THREADS": value}}, data)).problems
    where = f"{place(path)}.env_vars.OMP_NUM_THREADS"
    named = [one for one in found if one.startswith(where)]
    assert named == [refused(where, value, "must be a string (quote it)")]
    assert len(found) <= (2 if path.startswith("//") else 1)


@pytest.mark.parametrize("path", ENV[1:3])
@pytest.mark.parametrize(
    "block",
    [
        {"env_vars": {"OMP_NUM_THREADS": "1"}},
        {"working_dir": "https://host/a.zip"},
    ],
    ids=str,
)
def test_what_ray_takes_passes(check, path, block):
    assert check(having(path, block)).problems == []


def test_a_file_of_requirements_is_looked_for_only_where_it_is_to_be(check):
    data = having("runtime_env.pip", "/no/requirements.txt")
    (problem,) = check(data).problems
    assert problem.startswith(f"{PLACE}.runtime_env: ValueError: /no/requirements.txt is not")
    assert check(data, Target(env={}, local_paths=False)).problems == []


@pytest.mark.parametrize("source", ["/no/such/model", "./no-such-model"])
def test_a_model_folder_that_is_not_here_may_be_on_the_nodes(check, source):
    data = having(f"{MODEL}.model_source", source)
    found = check(data)
    assert found.problems == []
    assert found.notes == [
        f"{PLACE}.{MODEL}.model_source: {source!r}: no such folder here (looked in"
        f" {Path(source).resolve()}); every node that runs a replica needs it"
    ]
    assert check(data, Target(env={}, local_paths=False)).notes == []


def test_a_folder_that_holds_no_model_is_named(check, tmp_path):
    path, empty = f"{MODEL}.model_source", str(tmp_path)
    assert check(having(path, empty)).problems == [
        refused(place(path), empty, "it holds no config.json or params.json")
    ]


def test_a_model_whose_name_no_folder_can_have_is_named(check):
    source = "/" + "z" * 300
    (problem,) = check(having(f"{MODEL}.model_source", source)).problems
    assert f"{source!r} is not allowed: File name too long" in problem


def test_draft_model_and_tokenizer_folders_are_looked_for(check):
    data = having("engine_kwargs.speculative_config", {"model": "/no/draft"})
    data = having(f"{MODEL}.tokenizer_source", "/no/tokenizer", data)
    assert [note.split(": ")[0] for note in check(data).notes] == [
        f"{PLACE}.{MODEL}.tokenizer_source",
        f"{ENGINE}.speculative_config.model",
    ]


def test_keys_of_several_types_are_named(check):
    data = having("engine_kwargs", {"hf_overrides": {1: 2, "a": 3}})
    where = f"{ENGINE}.hf_overrides"
    assert {line.partition(": ")[0] for line in check(data).problems} == {f"{where}[1]", where}


def test_an_additional_config_that_is_no_mapping_is_a_finding(check):
    found = check(having("engine_kwargs.additional_config", 5))
    assert any("engine_kwargs.additional_config" in line for line in found.problems)


def test_a_chat_template_that_is_not_here_is_refused_where_paths_are_of_this_machine(check):
    missing = having("engine_kwargs.chat_template", "templates/chat.jinja")
    missing = having("engine_kwargs.enable_auto_tool_choice", True, missing)
    template, choice = check(missing).problems
    said = "'templates/chat.jinja' is not allowed: The supplied chat template string"
    assert template.startswith(f"{ENGINE}.chat_template: {said}")
    assert choice.startswith(f"{ENGINE}.enable_auto_tool_choice: ")
    elsewhere = Target(env={}, local_paths=False)
    assert check(missing, elsewhere).problems == [choice]


def test_a_chat_template_that_jinja_cannot_read_is_refused(check, tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text("{% for one in messages %}\n{{ one.content }}")
    (problem,) = check(having("engine_kwargs.chat_template", str(path))).problems
    assert problem.startswith(f"{ENGINE}.chat_template: '{path}' is not allowed: line ")
    whole = tmp_path / "whole.jinja"
    whole.write_text("{% generation %}{{ messages[0].content }}{% endgeneration %}")
    assert check(having("engine_kwargs.chat_template", str(whole))).problems == []


def test_a_parser_of_tools_without_the_choice_of_them_is_noted(check):
    parser = having("engine_kwargs.tool_call_parser", "hermes")
    found = check(parser)
    assert found.problems == []
    assert any(n.startswith(f"{ENGINE}.tool_call_parser: has no effect") for n in found.notes)
    chosen = check(having("engine_kwargs.enable_auto_tool_choice", True, parser))
    assert (chosen.problems, [n for n in chosen.notes if "tool" in n]) == ([], [])
