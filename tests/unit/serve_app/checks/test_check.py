"""``brimful check`` on Serve configurations: place, value and what is allowed, of each fault."""

import copy
from typing import Any

import pytest
import yaml

from serve_app.checks.findings import CONSOLE, Target
from serve_app.haproxy import FORWARD_BODY
from tests.pd_configs import pd_args
from tests.serve_configs import (
    APP,
    ARGS,
    DIRECT,
    HERE,
    PLACE,
    config,
    entry,
    having,
    place,
    put,
    refused,
    unknown,
)

ENGINE, DEPLOYMENT = f"{PLACE}.engine_kwargs", f"{PLACE}.deployment_config"
AUTO, OPTIONS = "deployment_config.autoscaling_config", "deployment_config.ray_actor_options"
OVER, MODEL = "applications[0].deployments[0]", "BrimfulServer:m"
KEY = "sk-0123456789abcdef"
AWAY = Target(env={}, local_paths=False)


def over(data: Any = None, **options: Any) -> Any:
    return having("/deployments", [{"name": MODEL, **options}], data)


def test_a_sound_config_is_described_and_starts_no_ray(check):
    import ray

    found = check(config(), DIRECT)
    assert (found.problems, found.notes) == ([], [])
    assert found.summary == [
        "llm at /: model m, policy adaptive, 50 ms between tokens at p99, 2 to 64 running,"
        " 1 to 3 replicas"
    ]
    assert not ray.is_initialized()


def test_all_problems_are_reported_together(check):
    data = having("batching.sla.itl_ms", 0)
    data = having(
        "engine_kwargs.max_num_seq", 3, having("deployment_config.num_replicas", -1, data)
    )
    data = having("scaling.drain_s", -1, having("/runtim_env", {}, data))
    assert {problem.split(": ")[0] for problem in check(data).problems} == {
        "applications[0]",
        f"{DEPLOYMENT}",
        f"{ENGINE}",
        f"{PLACE}.batching.sla.itl_ms",
        f"{PLACE}.scaling.drain_s",
    }


def test_two_applications_may_not_share_a_name_and_others_are_left_to_serves_schema(check):
    data = having("/args", {"anything": {"goes": 1}}, having("/import_path", "other:app"))
    found = check(data)
    assert found.problems == []
    assert found.summary == ["llm at /: other:app, checked by Ray Serve's schema only"]
    data["applications"].append(copy.deepcopy(data["applications"][0]))
    (problem,) = check(data).problems
    assert problem.startswith('applications: Found multiple configs for application "llm"')


REFUSED: list[tuple[str, Any, str]] = [
    ("batching.sla.itl_ms", 0, "Input should be greater than 0"),
    ("engine_kwargs.max_num_seqs", "64", "Input should be a valid integer"),
    ("engine_kwargs.enforce_eager", "false", "Input should be a valid boolean"),
    ("engine_kwargs.scheduling_policy", "lifo", "Input should be 'fcfs' or 'priority'"),
    ("engine_kwargs.tool_call_parser", "hermess", "did you mean 'hermes'?"),
    ("accelerator_type", "H1000", "Unsupported accelerator type: H1000"),
    ("runtime_env.env_vars.OMP_NUM_THREADS", 1, "must be a string (quote it)"),
    (f"{OPTIONS}.runtime_env.env_vars.OMP_NUM_THREADS", 1, "must be a string (quote it)"),
    ("/runtime_env.env_vars.OMP_NUM_THREADS", 1, "must be a string (quote it)"),
    ("/args.ingress_deployment_config.ray_actor_options.runtime_env.env_vars.A", 1,
     "must be a string (quote it)"),
    ("//applications", 3, "Input should be a valid list"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "why"), REFUSED)
def test_a_value_that_is_not_allowed_is_named_with_its_place(check, path, value, why):
    assert refused(place(path), value, why) in check(having(path, value)).problems


ACTOR = {"runtime_env": {"env_vars": {"A": 1}}}
BEGINS: list[tuple[str, Any, str]] = [
    ("engine_kwargs.enable_chunked_prefill", False,
     f"{ENGINE}.enable_chunked_prefill: False is not allowed with batching.sla.itl_ms"),
    ("engine_kwargs.pipeline_parallel_size", 2, f"{ENGINE}.pipeline_parallel_size: 2 is not"),
    ("engine_kwargs.data_parallel_size", 4, f"{ENGINE}.data_parallel_size: 4 is not allowed"),
    ("engine_kwargs.tensor_parallel_size", 8_000_000, f"{PLACE}: ConfigError: engine_kwargs"),
    ("engine_kwargs.additional_config", {"brimful": {}},
     f"{ENGINE}.additional_config.brimful: is made from the batching block"),
    ("engine_kwargs.trust_remote_code", True,
     f"{ENGINE}.trust_remote_code: runs code that comes with the model"),
    ("engine_kwargs.api_key", [KEY], f"{ENGINE}.api_key: is not allowed: Ray shows"),
    ("engine_kwargs.enable_auto_tool_choice", True,
     f"{ENGINE}.enable_auto_tool_choice: True is not allowed: enable_auto_tool_choice requires"),
    ("engine_kwargs.sse_keep_alive_interval", -1, f"{ENGINE}.sse_keep_alive_interval: -1 is not"),
    ("//proxy_location", "Disabled", "proxy_location: 'Disabled' is not allowed: without a proxy"),
    ("engine_kwargs", [], f"{ENGINE}: must be a mapping, got []"),
    (f"{AUTO}.min_replicas", 4, f"{AUTO}: max_replicas (3) must be greater"),
    ("deployment_config.request_router_config", {"request_router_class": "no_such_module.Router"},
     f"{DEPLOYMENT}: ModuleNotFoundError"),
    ("model_loading_config", {"model_source": "m"},
     f"{PLACE}.model_loading_config.model_id: required key is missing"),
    ("runtime_env", {"pip": ["a"], "uv": ["b"]}, f"{PLACE}.runtime_env: ValueError: "),
    (f"{OPTIONS}.resources", {"GPU": 1}, f"{PLACE}: ValueError: Use the 'num_cpus'"),
    ("placement_group_config", {"bundle_per_worker": {"GPU": 1, "disk": "1"}},
     f"{PLACE}.placement_group_config.bundle_per_worker: Resource 'disk' must be a number"),
    ("/route_prefix", "llm", 'applications[0].route_prefix: ValueError: Got "llm"'),
    ("/deployments", [None], "applications[0].deployments[0]: must be a mapping, got None"),
    ("/deployments", 3, "applications[0].deployments: must be a list, got 3"),
    ("/args.llm_configs", [3], f"{PLACE}: 3 is not allowed: a mapping, the path of one"),
    ("/args.llm_configs", [], f"{ARGS}.llm_configs: must be a list with at least one model"),
    ("/args.security.keys", {"alice": KEY}, f"{ARGS}.security.keys"),
    ("/args.auto_model", {"name": "auto", "default": "n", "rules": []},
     f"{ARGS}.auto_model.default: 'n' is not allowed"),
    ("/deployments", [{"name": MODEL, "placement_group_bundles": [{"CPU": 0}]}],
     f"{OVER}: ValueError: Bundles cannot be an empty dictionary"),
    ("/deployments", [{"name": MODEL, "user_config": {"batching": {"max_running": {"max": 100}}}}],
     f"{OVER}.user_config.batching.max_running.max: 100 is above max_num_seqs=64"),
    # It would bring Ray's own policy back, without a word.
    ("/deployments", [{"name": MODEL, "autoscaling_config": {"max_replicas": 5}}],
     f"{OVER}.autoscaling_config: replaces the entry's whole block"),
    ("/deployments", [{"name": MODEL, "ray_actor_options": ACTOR}],
     f"{OVER}.ray_actor_options.runtime_env.env_vars.A: 1 is not allowed"),
    ("deployment_config.user_config", {"any": 1}, f"{DEPLOYMENT}.user_config: unknown key 'any'"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "begins"), BEGINS, ids=str)
def test_what_ray_or_a_replica_would_refuse_later_is_one_line(check, path, value, begins):
    found = check(having(path, value))
    (problem,) = found.problems
    assert problem.removeprefix(f"{PLACE}.").startswith(begins.removeprefix(f"{PLACE}."))
    assert KEY not in f"{found}"


UNKNOWN = [
    ("//proxy_locaton", "proxy_location"),
    ("//http_options.prt", "port"),
    ("/route_prefx", "route_prefix"),
    ("/args.llm_config_", "llm_configs"),
    ("/args.security.extra_path", "extra_paths"),
    ("batchin", "batching"),
    ("scaling.drain", "drain_s"),
    ("model_loading_config.model_sorce", "model_source"),
    ("deployment_config.max_queud_requests", "max_queued_requests"),
    (f"{OPTIONS}.num_cpu", "num_cpus"),
    ("engine_kwargs.max_num_seq", "max_num_seqs"),
    ("engine_kwargs.compilation_config.cudagraph_mod", "cudagraph_mode"),
    ("runtime_env.working_dr", "working_dir"),
    ("lora_config.max_num_adapter_per_replica", "max_num_adapters_per_replica"),
    ("placement_group_config.strateg", "strategy"),
    ("/deployments.0.max_queud_requests", "max_queued_requests"),
]


@pytest.mark.parametrize(("path", "nearest"), UNKNOWN)
def test_an_unknown_key_is_named_with_its_place_and_the_nearest(check, path, nearest):
    data = having("placement_group_config.bundle_per_worker", {"GPU": 1}, over())
    above, _, key = place(path).rpartition(".")
    assert check(having(path, {}, data)).problems == [unknown(above or "top level", key, nearest)]


def test_dropped_keys_free_mappings_and_tagged_unions(check):
    (problem,) = check(having("engine_kwargs.device", "cpu")).problems
    assert problem.startswith(f"{ENGINE}: 'device' was dropped; write accelerator_config")
    data = having("engine_kwargs.hf_overrides.any", 1, having("experimental_configs.any", 1))
    data = having("engine_kwargs.attention_backend", "FLASH_ATTN", data)
    data = having("engine_kwargs.compilation_config", {"cudagraph_mode": "FULL", "mode": 3}, data)
    assert check(having("runtime_env.env_vars.ANY", "1", data)).problems == []
    data = having("accelerator_config", {"kind": "gpu", "topology": "2x2"})
    says = f"{PLACE}.accelerator_config: unknown key 'topology'; allowed: kind"
    assert check(data).problems == [says]


TWO = {"gold": {"itl_ms": 50}, "batch": {"default": True}}
FORWARDING = Target(env={**DIRECT.env, FORWARD_BODY: "1"}, local_paths=True)


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (having("router", {"prefix_affinity": True}), "router.prefix_affinity"),
        (having("router", {"gather_classes": True}, having("classes", TWO)),
         "router.gather_classes"),
        (having("lora_config", {"dynamic_lora_loading_path": "s3://b/lora"}), "lora_config"),
    ],
    ids=["prefixes", "classes", "lora"],
)  # fmt: skip
def test_what_the_router_is_not_shown_is_noted_where_requests_come_directly(check, data, key):
    (note,) = check(data, DIRECT).notes
    assert note.startswith(f"{PLACE}.{key}: has no effect without {FORWARD_BODY}")
    assert check(data, FORWARDING).notes == check(data).notes == []


def test_a_log_of_prompts_and_scaling_without_effect_are_noted(check):
    data = having("deployment_config", {"num_replicas": 1})
    assert check(having("engine_kwargs.enable_log_requests", True, data)).notes == [
        f"{PLACE}.scaling: has no effect without deployment_config.autoscaling_config",
        f"{ENGINE}.enable_log_requests: the log would hold requests or answers of clients",
    ]


def test_rules_of_auto_model_are_for_the_plain_ingress(check):
    block = {"name": "auto", "default": "m", "rules": []}
    data = having("/args.auto_model", block)
    assert check(data).problems == []
    (problem,) = check(data, DIRECT).problems
    assert problem.startswith(f"{ARGS}.auto_model: ")


def test_an_entry_may_stand_in_a_file_of_its_own(check, tmp_path):
    path = tmp_path / "model.yaml"
    data = having("", str(path))
    assert check(data).problems == [f"{PLACE}: {path}: cannot be read: No such file or directory"]
    wrong = yaml.safe_dump(put(entry(), ("scaling", "drain"), 1))
    for text, problems in (
        (wrong, [unknown(f"{PLACE} ({path}).scaling", "drain", "drain_s")]),
        (yaml.safe_dump(entry()), []),
    ):
        path.write_text(text)
        assert check(data).problems == problems
    assert check(data, AWAY).notes == [
        f"{PLACE}: {str(path)!r} is on another machine and was not checked"
    ]


def test_a_file_of_requirements_is_looked_for_only_where_it_is_to_be(check):
    data = having("runtime_env.pip", "/no/requirements.txt")
    (problem,) = check(data).problems
    assert problem.startswith(f"{PLACE}.runtime_env: ValueError: /no/requirements.txt is not")
    assert check(data, AWAY).problems == []


@pytest.mark.parametrize(
    "path", ["serve_app.build_app", "serve_app.build:build_app", "serve_app.build.build_app"]
)
def test_our_builder_is_known_by_all_of_its_names(check, path):
    wrong = having("scaling.drain", 1, having("/import_path", path))
    assert check(wrong).problems == [unknown(f"{PLACE}.scaling", "drain", "drain_s")]


# --- prefill and decode apart


def pair(**args: Any) -> Any:
    return put(config(), (*APP, "args"), {**pd_args(), **args})


def test_a_sound_pair_is_described_by_its_roles_and_its_overrides_are_known(check):
    live = {"batching": {"sla": {"itl_ms": 0}}}
    data = pair()
    found = check(data, DIRECT)
    assert found.problems == []
    assert found.summary == [
        "llm at /: prefill: model m, policy adaptive, 2000 ms to the first token at p99, 1 to 64"
        " running, 1 replica; decode: model m, policy adaptive, 50 ms between tokens and 2000 ms to"
        " the first token at p99, 1 to 64 running, 1 replica"
    ]
    (said,) = check(
        having("/deployments", [{"name": "Decode:m", "user_config": live}], data)
    ).problems
    assert said.startswith(f"{OVER}.user_config.batching.sla.itl_ms: 0 is not allowed")


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("llm_configs",), [entry()], f"{ARGS}: llm_configs is not allowed with prefill_config"),
        (("decode_config",), None, f"{ARGS}.decode_config: required key is missing with"),
        (("prefill_config", "model_loading_config", "model_id"), "n",
         f"{ARGS}.prefill_config.model_loading_config.model_id: 'n' is not allowed"),
        (("decode_config", "engine_kwargs", "max_num_seq"), 3,
         unknown(f"{ARGS}.decode_config.engine_kwargs", "max_num_seq", "max_num_seqs")),
        (("prefill",), {}, unknown(ARGS, "prefill", "prefill_config")),
    ],
)  # fmt: skip
def test_each_wrong_input_of_a_pair_gets_one_line(check, path, value, line):
    (problem,) = check(put(pair(), (*APP, "args", *path), value)).problems
    assert problem.startswith(line)


# --- the console and batches


def test_a_console_beside_models_with_keys_says_who_may_see_it(check):
    keys = {"keys": {"file": "/etc/brimful/keys"}}
    console = {"name": "console", "route_prefix": "/console", "import_path": CONSOLE}
    data = having("/args.security", keys)
    for args, problem, summary in (
        ({}, "applications[1].args.security.keys: required key is missing", None),
        ({"theme": 1, "security": keys}, "applications[1].args: unknown key 'theme'", None),
        ({"security": keys}, None, "everyone who has a key"),
        ({"security": {"keys": None}}, None, "everyone who reaches it"),
    ):
        found = check({"applications": [*data["applications"], {**console, "args": args}]})
        if problem is None:
            assert (found.problems, found.summary[1].endswith(summary)) == ([], True)
        else:
            assert [one.startswith(problem) for one in found.problems] == [True]


def test_batches_name_a_class_that_there_is(check, tmp_path):
    data = having("classes", {"online": {"default": True}, "late": {"aliases": ["flex"]}})
    sound = {"serves": "http://127.0.0.1:8000/v1", "folder": str(tmp_path)}
    batches = {"name": "b", "route_prefix": "/b", "import_path": "serve_app.batches:build"}
    for args, places in (
        ({}, ["service_tier"]),
        ({"service_tier": "late", "urgent_tier": "online"}, []),
        ({"service_tier": "flex"}, []),
        ({"service_tier": "late", "urgent_tier": "never"}, ["urgent_tier"]),
        ({"serves": "localhost", "folder": "here"}, ["serves", "folder"]),
    ):
        found = check({"applications": [*data["applications"], {**batches, "args": sound | args}]})
        told = [one.partition(": ")[0] for one in found.problems]
        assert told == [f"applications[1].args.{key}" for key in places]
        assert places or found.summary[1].startswith("b at /b: batches of requests for http://")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("- a\n- b\n", "top level: must be a mapping, got ['a', 'b']"),
        (
            "import_path: a:b\nargs: {}\n",
            "top level: is an application; it belongs in a list: applications: [{...}]",
        ),
        ("applications: []\n---\nb: 1\n", "2 YAML documents; Ray Serve reads the first one only"),
    ],
)
def test_a_file_that_is_no_config_is_one_line(check, data, line):
    assert check(data, HERE).problems == [line]


def test_an_unknown_key_of_ranks_is_told_where_it_belongs(check):
    data = having("/args", {"llm_config": {"model_loading_config": {"model_id": "m"}}})
    (problem,) = check(data).problems
    assert problem.startswith(f"{ARGS}.llm_config: belongs to ray.serve.llm:build_dp_openai_app")
