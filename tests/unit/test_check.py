"""``brimful check`` on Serve configurations: each wrong input and the one line it gets."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.check import check_file
from serve_app.checks.findings import DIRECT_STREAMING, FORWARD_BODY, HA_PROXY, Findings, Target
from serve_app.cli import main

ROOT = Path(__file__).parents[2]
HERE = Target(env={}, local_paths=True)
DIRECT = Target(env={HA_PROXY: "1", DIRECT_STREAMING: "1"}, local_paths=True)
APP = "applications[0]"
ARGS = f"{APP}.args"
ENTRY = f"{ARGS}.llm_configs[0]"


def config() -> dict[str, Any]:
    """A configuration without a fault."""
    entry = {
        "model_loading_config": {"model_id": "m", "model_source": "org/m"},
        "engine_kwargs": {"max_num_seqs": 64, "max_num_batched_tokens": 512},
        "deployment_config": {"autoscaling_config": {"min_replicas": 1, "max_replicas": 3}},
        "batching": {"sla": {"itl_ms": 50}, "max_running": {"min": 2, "max": 64}},
        "scaling": {"drain_s": 20},
    }
    app = {
        "name": "llm",
        "route_prefix": "/",
        "import_path": "serve_app:build_app",
        "args": {"llm_configs": [entry]},
    }
    return {"applications": [app]}


def put(data: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """A copy of ``data`` with ``value`` at ``path``; mappings on the way are made."""
    data = copy.deepcopy(data)
    inner = data
    for part in path[:-1]:
        inner = inner.setdefault(part, {}) if isinstance(inner, dict) else inner[part]
    inner[path[-1]] = value
    return data


def entry_path(*path: str | int) -> tuple[str | int, ...]:
    return ("applications", 0, "args", "llm_configs", 0, *path)


def app_path(*path: str | int) -> tuple[str | int, ...]:
    return ("applications", 0, *path)


@pytest.fixture
def check(tmp_path: Path):
    def check(data: Any, target: Target = HERE) -> Findings:
        path = tmp_path / "serve.yaml"
        path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
        return check_file(path, target)

    return check


def test_a_sound_config_is_described(check):
    found = check(config(), DIRECT)

    assert found.problems == []
    assert found.notes == []
    assert found.summary == [
        "llm at /: model m, policy paper, 50 ms between tokens at p99, 2 to 64 running,"
        " 1 to 3 replicas"
    ]


def unknown(place: str, key: str, nearest: str) -> str:
    return f"{place}: unknown key {key!r}; did you mean {nearest!r}?"


UNKNOWN_KEYS = {
    ("proxy_locaton",): unknown("top level", "proxy_locaton", "proxy_location"),
    ("http_options", "prt"): unknown("http_options", "prt", "port"),
    ("logging_config", "log_lvel"): unknown("logging_config", "log_lvel", "log_level"),
    app_path("route_prefx"): unknown(APP, "route_prefx", "route_prefix"),
    app_path("runtime_env", "env_var"): unknown(f"{APP}.runtime_env", "env_var", "env_vars"),
    app_path("args", "llm_config"): unknown(ARGS, "llm_config", "llm_configs"),
    app_path("args", "ingress_deployment_config", "num_replica"): unknown(
        f"{ARGS}.ingress_deployment_config", "num_replica", "num_replicas"
    ),
    entry_path("batchin"): unknown(ENTRY, "batchin", "batching"),
    entry_path("acelerator_type"): unknown(ENTRY, "acelerator_type", "accelerator_type"),
    entry_path("model_loading_config", "model_sorce"): unknown(
        f"{ENTRY}.model_loading_config", "model_sorce", "model_source"
    ),
    entry_path("deployment_config", "max_queud_requests"): unknown(
        f"{ENTRY}.deployment_config", "max_queud_requests", "max_queued_requests"
    ),
    entry_path("deployment_config", "autoscaling_config", "max_replica"): unknown(
        f"{ENTRY}.deployment_config.autoscaling_config", "max_replica", "max_replicas"
    ),
    entry_path("deployment_config", "autoscaling_config", "policy", "policy_kwarg"): unknown(
        f"{ENTRY}.deployment_config.autoscaling_config.policy", "policy_kwarg", "policy_kwargs"
    ),
    entry_path("deployment_config", "ray_actor_options", "num_cpu"): unknown(
        f"{ENTRY}.deployment_config.ray_actor_options", "num_cpu", "num_cpus"
    ),
    entry_path("deployment_config", "ray_actor_options", "runtime_env", "env_var"): unknown(
        f"{ENTRY}.deployment_config.ray_actor_options.runtime_env", "env_var", "env_vars"
    ),
    entry_path("deployment_config", "request_router_config", "request_router_clas"): unknown(
        f"{ENTRY}.deployment_config.request_router_config",
        "request_router_clas",
        "request_router_class",
    ),
    entry_path("engine_kwargs", "max_num_seq"): unknown(
        f"{ENTRY}.engine_kwargs", "max_num_seq", "max_num_seqs"
    ),
    entry_path("engine_kwargs", "enable_auto_tool_choic"): unknown(  # a front-end argument
        f"{ENTRY}.engine_kwargs", "enable_auto_tool_choic", "enable_auto_tool_choice"
    ),
    entry_path("engine_kwargs", "compilation_config", "cudagraph_mod"): unknown(
        f"{ENTRY}.engine_kwargs.compilation_config", "cudagraph_mod", "cudagraph_mode"
    ),
    entry_path("engine_kwargs", "speculative_config", "num_speculative_token"): unknown(
        f"{ENTRY}.engine_kwargs.speculative_config",
        "num_speculative_token",
        "num_speculative_tokens",
    ),
    entry_path("batching", "sla", "itl_msec"): unknown(
        f"{ENTRY}.batching.sla", "itl_msec", "itl_ms"
    ),
    entry_path("batching", "max_running", "maks"): unknown(
        f"{ENTRY}.batching.max_running", "maks", "max"
    ),
    entry_path("batching", "paper", "epsilon_d"): unknown(
        f"{ENTRY}.batching.paper", "epsilon_d", "epsilon_d_ms"
    ),
    entry_path("scaling", "drain"): unknown(f"{ENTRY}.scaling", "drain", "drain_s"),
    entry_path("runtime_env", "working_dr"): unknown(
        f"{ENTRY}.runtime_env", "working_dr", "working_dir"
    ),
    entry_path("lora_config", "max_num_adapter_per_replica"): unknown(
        f"{ENTRY}.lora_config", "max_num_adapter_per_replica", "max_num_adapters_per_replica"
    ),
    entry_path("callback_config", "callback_clas"): unknown(
        f"{ENTRY}.callback_config", "callback_clas", "callback_class"
    ),
}


@pytest.mark.parametrize(("path", "message"), UNKNOWN_KEYS.items(), ids=lambda value: str(value)[:60])
def test_an_unknown_key_is_named_with_its_place_and_the_nearest(check, path, message):
    assert check(put(config(), path, {})).problems == [message]


def test_an_unknown_key_inside_a_tagged_union_is_found_by_the_tag(check):
    data = put(config(), entry_path("accelerator_config"), {"kind": "gpu", "topology": "2x2"})

    assert check(data).problems == [
        f"{ENTRY}.accelerator_config: unknown key 'topology'; allowed: kind"
    ]


def test_an_unknown_key_in_a_deployment_override_is_an_error(check):
    data = put(config(), app_path("deployments"), [{"name": "d", "max_queud_requests": 1}])

    assert check(data).problems == [
        unknown(f"{APP}.deployments[0]", "max_queud_requests", "max_queued_requests")
    ]


def test_an_unknown_key_in_a_placement_group_is_an_error(check):
    data = put(
        config(),
        entry_path("placement_group_config"),
        {"bundle_per_worker": {"GPU": 1, "accelerator_type:H100": 0.001}, "strateg": "PACK"},
    )

    assert check(data).problems == [
        unknown(f"{ENTRY}.placement_group_config", "strateg", "strategy")
    ]


FREE = [
    app_path("runtime_env", "env_vars", "ANY_NAME"),
    entry_path("runtime_env", "env_vars", "ANY_NAME"),
    entry_path("deployment_config", "user_config", "any"),
    entry_path("deployment_config", "ray_actor_options", "resources", "any"),
    entry_path("engine_kwargs", "hf_overrides", "any"),
    entry_path("engine_kwargs", "additional_config", "any"),
    entry_path("engine_kwargs", "limit_mm_per_prompt", "any"),
    entry_path("experimental_configs", "any"),
]


@pytest.mark.parametrize("path", FREE, ids=lambda path: str(path[-2]))
def test_free_mappings_stay_free(check, path):
    value: Any = "1" if "env_vars" in path else 1

    assert check(put(config(), path, value)).problems == []


def refused(place: str, value: Any, message: str) -> str:
    return f"{place}: {value!r} is not allowed: {message}"


DEPLOYMENT = f"{ENTRY}.deployment_config"
ENGINE = f"{ENTRY}.engine_kwargs"
VALUES = [
    (
        entry_path("batching", "sla", "itl_ms"),
        0,
        refused(f"{ENTRY}.batching.sla.itl_ms", 0, "Input should be greater than 0"),
    ),
    (
        entry_path("batching", "max_running", "max"),
        65,
        f"{ENTRY}.batching.max_running.max: 65 is above max_num_seqs=64, the size the engine is"
        " started with; lower it or raise max_num_seqs",
    ),
    (
        entry_path("batching", "policy"),
        "papr",
        refused(f"{ENTRY}.batching.policy", "papr", "Input should be 'static' or 'paper'"),
    ),
    (
        entry_path("scaling", "target_utilization"),
        1.5,
        refused(
            f"{ENTRY}.scaling.target_utilization", 1.5, "Input should be less than or equal to 1"
        ),
    ),
    (
        entry_path("engine_kwargs", "max_num_seqs"),
        "64",
        refused(f"{ENGINE}.max_num_seqs", "64", "must be of type int"),
    ),
    (
        entry_path("engine_kwargs", "enforce_eager"),
        "false",
        refused(f"{ENGINE}.enforce_eager", "false", "must be of type bool"),
    ),
    (
        entry_path("engine_kwargs", "gpu_memory_utilization"),
        1.5,
        refused(
            f"{ENGINE}.gpu_memory_utilization", 1.5, "Input should be less than or equal to 1"
        ),
    ),
    (
        entry_path("engine_kwargs", "scheduling_policy"),
        "lifo",
        refused(f"{ENGINE}.scheduling_policy", "lifo", "Input should be 'fcfs' or 'priority'"),
    ),
    (
        entry_path("engine_kwargs", "attention_backend"),
        "FLASH_ATTNN",
        refused(f"{ENGINE}.attention_backend", "FLASH_ATTNN", "did you mean 'FLASH_ATTN'?"),
    ),
    (
        entry_path("engine_kwargs", "max_num_batched_tokens"),
        32,
        f"{ENGINE}: max_num_batched_tokens (32) must be greater than or equal to max_num_seqs"
        " (64).",
    ),
    (
        entry_path("engine_kwargs", "scheduler_cls"),
        "my.Scheduler",
        refused(
            f"{ENGINE}.scheduler_cls",
            "my.Scheduler",
            "Brimful sets it to 'replicas.scheduler.DynamicBatchScheduler'; leave the key out",
        ),
    ),
    (
        entry_path("engine_kwargs", "additional_config"),
        {"brimful": {}},
        f"{ENGINE}.additional_config.brimful: is made from the batching block; leave it out",
    ),
    (entry_path("engine_kwargs"), [], f"{ENGINE}: must be a mapping, got []"),
    (
        entry_path("server_cls"),
        "my:Server",
        refused(
            f"{ENTRY}.server_cls",
            "my:Server",
            "Brimful sets it to 'replicas.server:BrimfulServer'; leave the key out",
        ),
    ),
    (
        entry_path("accelerator_type"),
        "H1000",
        refused(f"{ENTRY}.accelerator_type", "H1000", "Unsupported accelerator type: H1000"),
    ),
    (
        entry_path("deployment_config", "num_replicas"),
        2,
        f"{DEPLOYMENT}: Manually setting num_replicas is not allowed when autoscaling_config is"
        " provided.",
    ),
    (
        entry_path("deployment_config", "max_queued_requests"),
        0,
        f"{DEPLOYMENT}: max_queued_requests must be -1 (no limit) or a positive integer.",
    ),
    (
        entry_path("deployment_config", "autoscaling_config", "target_ongoing_requests"),
        -1,
        refused(
            f"{DEPLOYMENT}.autoscaling_config.target_ongoing_requests",
            -1,
            "Input should be greater than 0",
        ),
    ),
    (
        entry_path("deployment_config", "autoscaling_config", "min_replicas"),
        4,
        f"{DEPLOYMENT}.autoscaling_config: max_replicas (3) must be greater than or equal to"
        " min_replicas (4)!",
    ),
    (
        entry_path("deployment_config", "request_router_config"),
        {"request_router_class": "no_such_module.Router"},
        f"{DEPLOYMENT}.request_router_config: ModuleNotFoundError: No module named"
        " 'no_such_module'",
    ),
    (
        entry_path("deployment_config", "placement_group_strategy"),
        "PACK",
        f"{DEPLOYMENT}.placement_group_strategy: Ray Serve LLM computes it; set"
        " placement_group_config instead",
    ),
    (
        entry_path("placement_group_config"),
        {"bundle_per_worker": {"GPU": -1}},
        refused(
            f"{ENTRY}.placement_group_config.bundle_per_worker.GPU",
            -1,
            "Input should be greater than or equal to 0",
        ),
    ),
    (
        entry_path("model_loading_config"),
        {"model_source": "org/m"},
        f"{ENTRY}.model_loading_config.model_id: required key is missing",
    ),
    (
        app_path("args", "llm_configs"),
        [],
        f"{ARGS}.llm_configs: must be a list with at least one model, got []",
    ),
    (
        app_path("args", "llm_configs"),
        [3],
        f"{ARGS}.llm_configs[0]: must be a mapping or the path of one, got 3",
    ),
    (
        app_path("route_prefix"),
        "llm",
        refused(
            f"{APP}.route_prefix",
            "llm",
            'Got "llm" for route_prefix. Route prefix must start with "/".',
        ),
    ),
    (
        app_path("deployments"),
        [{"name": "d", "autoscaling_config": {"min_replicas": -1}}],
        refused(
            f"{APP}.deployments[0].autoscaling_config.min_replicas",
            -1,
            "Input should be greater than or equal to 0",
        ),
    ),
    (("applications",), 3, refused("applications", 3, "Input should be a valid list")),
]


@pytest.mark.parametrize(("path", "value", "message"), VALUES, ids=lambda v: str(v)[-50:])
def test_a_wrong_value_is_named_with_its_place(check, path, value, message):
    assert check(put(config(), path, value)).problems == [message]


@pytest.mark.parametrize("source", ["/no/such/model", "./no-such-model", "../no-such", ".cache/no"])
def test_a_model_folder_that_does_not_exist_is_named(check, source):
    data = put(config(), entry_path("model_loading_config", "model_source"), source)

    place = f"{ENTRY}.model_loading_config.model_source"
    message = f"no such folder (looked in {Path(source).resolve()})"
    assert check(data).problems == [refused(place, source, message)]
    assert check(data, Target(env={}, local_paths=False)).problems == []


def test_a_folder_that_holds_no_model_is_named(check, tmp_path):
    data = put(config(), entry_path("model_loading_config", "model_source"), str(tmp_path))

    place = f"{ENTRY}.model_loading_config.model_source"
    assert check(data).problems == [
        refused(place, str(tmp_path), "it holds no config.json or params.json")
    ]


def test_draft_model_and_tokenizer_folders_are_looked_for(check):
    data = put(config(), entry_path("engine_kwargs", "speculative_config"), {"model": "/no/draft"})
    data = put(data, entry_path("model_loading_config", "tokenizer_source"), "/no/tokenizer")

    assert [problem.split(": ")[0] for problem in check(data).problems] == [
        f"{ENTRY}.model_loading_config.tokenizer_source",
        f"{ENTRY}.engine_kwargs.speculative_config.model",
    ]


def test_arguments_that_ray_serve_llm_refuses_only_on_building_are_found(check):
    data = put(config(), entry_path("engine_kwargs", "model"), "org/other")

    assert check(data).problems == [
        f"{ENTRY}: ValueError: model or served_model_name is not allowed in engine_kwargs when"
        " using Ray Serve LLM. Please use `model_loading_config` in LLMConfig instead."
    ]


def test_all_problems_are_reported_together(check):
    data = put(config(), entry_path("batching", "sla", "itl_ms"), 0)
    data = put(data, entry_path("engine_kwargs", "max_num_seq"), 3)
    data = put(data, entry_path("scaling", "drain_s"), -1)
    data = put(data, app_path("runtim_env"), {})

    places = [problem.split(": ")[0] for problem in check(data).problems]
    assert places == [APP, ENGINE, f"{ENTRY}.batching.sla.itl_ms", f"{ENTRY}.scaling.drain_s"]


def test_two_applications_may_share_neither_name_nor_route(check):
    data = config()
    data["applications"].append(copy.deepcopy(data["applications"][0]))

    assert check(data).problems == [
        refused("applications[1].name", "llm", "applications[0] has it already"),
        refused("applications[1].route_prefix", "/", "applications[0] has it already"),
    ]


def test_a_route_that_is_left_out_is_the_default_one(check):
    data = config()
    data["applications"].append({"name": "other", "import_path": "other:app"})

    assert check(data).problems == [
        refused("applications[1].route_prefix", "/", "applications[0] has it already")
    ]


def test_other_applications_are_checked_by_serves_schema_only(check):
    data = put(config(), app_path("import_path"), "other:app")
    data = put(data, app_path("args"), {"anything": {"goes": 1}})

    found = check(data)
    assert found.problems == []
    assert found.summary == ["llm at /: other:app, checked by Ray Serve's schema only"]


def test_a_single_application_at_the_top_level_is_checked_and_refused(check):
    data = put(config(), entry_path("scaling", "drain"), 3)["applications"][0]

    assert check(data).problems == [
        "applications: required key is missing; Ray Serve no longer takes a single application at"
        " the top level: put it into this list",
        unknown(f"{ENTRY}.scaling", "drain", "drain_s"),
    ]


def two_models() -> dict[str, Any]:
    data = config()
    entries = data["applications"][0]["args"]["llm_configs"]
    entries.append(put(entries[0], ("model_loading_config", "model_id"), "n"))
    return data


def test_direct_streaming_takes_one_model_per_application(check):
    message = (
        f"{ARGS}.llm_configs: direct streaming takes one model per application, got 2;"
        " make each its own application"
    )
    assert check(two_models(), DIRECT).problems == [message]

    plain = check(two_models(), HERE)
    assert plain.problems == []
    assert plain.notes == [f"{message} ({DIRECT_STREAMING} is not set)"]


def test_direct_streaming_takes_no_ingress_options(check):
    data = put(config(), app_path("args", "ingress_deployment_config"), {"num_replicas": 2})

    assert check(data, DIRECT).problems == [
        f"{ARGS}.ingress_deployment_config: direct streaming has no ingress deployment; leave the"
        " key out"
    ]


def test_direct_streaming_needs_haproxy(check):
    alone = Target(env={DIRECT_STREAMING: "1"}, local_paths=True)

    assert check(config(), alone).problems == [
        f'{ARGS}: {DIRECT_STREAMING}="1" needs {HA_PROXY}="1" beside it'
    ]


def test_direct_streaming_with_lora_needs_the_request_body_at_the_router(check):
    data = put(config(), entry_path("lora_config"), {"dynamic_lora_loading_path": "s3://b/lora"})

    assert check(data, DIRECT).problems == [
        f'{ARGS}.llm_configs: LoRA with direct streaming needs {FORWARD_BODY}="1"'
    ]
    forwarding = Target(env={**DIRECT.env, FORWARD_BODY: "1"}, local_paths=True)
    assert check(data, forwarding).problems == []


def test_two_models_of_one_application_need_two_names(check):
    data = put(two_models(), ("applications", 0, "args", "llm_configs", 1), config_entry())

    place = f"{ARGS}.llm_configs[1].model_loading_config.model_id"
    assert check(data).problems == [
        refused(place, "m", "another model of this application has it already")
    ]


def config_entry() -> dict[str, Any]:
    return config()["applications"][0]["args"]["llm_configs"][0]


def test_an_entry_may_stand_in_a_file_of_its_own(check, tmp_path):
    path = tmp_path / "model.yaml"
    data = put(config(), entry_path(), str(path)) if False else config()
    data["applications"][0]["args"]["llm_configs"] = [str(path)]

    assert check(data).problems == [f"{ENTRY}: {path}: cannot read it: No such file or directory"]

    path.write_text("- a\n")
    assert check(data).problems == [f'{ENTRY}: {path}: must hold a mapping, got ["a"]']

    path.write_text(yaml.safe_dump(put(config_entry(), ("scaling", "drain"), 1)))
    assert check(data).problems == [unknown(f"{ENTRY}.scaling", "drain", "drain_s")]

    path.write_text(yaml.safe_dump(config_entry()))
    assert check(data).problems == []


def test_a_block_without_effect_is_noted(check):
    data = put(config(), entry_path("deployment_config"), {"num_replicas": 1})

    assert check(data).notes == [
        f"{ENTRY}.scaling: has no effect without deployment_config.autoscaling_config"
    ]


def test_a_bound_without_an_engine_size_is_noted(check):
    (note,) = check(put(config(), entry_path("engine_kwargs"), {})).notes

    assert note.startswith(f"{ENTRY}.engine_kwargs: without max_num_seqs vLLM chooses it")


def test_what_ray_will_refuse_later_is_noted(check):
    data = put(
        config(), entry_path("deployment_config", "autoscaling_config", "look_back_period_s"), 5
    )

    found = check(data)
    assert found.problems == []
    assert [note[:20] for note in found.notes] == ["`look_back_period_s`"]


def test_a_document_that_is_no_mapping_is_named(check):
    assert check("- a\n- b\n").problems == ['top level: must be a mapping, got ["a", "b"]']


def test_serve_reads_one_document_only(check):
    assert check("applications: []\n---\nb: 1\n").problems == [
        "2 YAML documents; Ray Serve reads the first one only"
    ]


def test_the_command_prints_every_problem_and_exits_with_2(tmp_path, capsys):
    path = tmp_path / "serve.yaml"
    data = put(config(), entry_path("scaling", "drain"), 1)
    path.write_text(yaml.safe_dump(put(data, ("proxy_locaton",), 1)))

    assert main(["check", str(path)]) == 2
    printed = capsys.readouterr()
    assert "ok" not in printed.out
    assert [line for line in printed.err.splitlines() if line.startswith("error: ")] == [
        f"error: {path}: {unknown('top level', 'proxy_locaton', 'proxy_location')}",
        f"error: {path}: {unknown(f'{ENTRY}.scaling', 'drain', 'drain_s')}",
    ]


def test_the_shipped_configs_pass(tmp_path, monkeypatch, capsys):
    # cpu.yaml names a model that `brimful demo` makes before it deploys.
    model = tmp_path / ".cache" / "tiny-llama"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    for name, value in DIRECT.env.items():
        monkeypatch.setenv(name, value)

    files = sorted((ROOT / "configs").glob("*.yaml"))
    assert main(["check", *map(str, files)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "ok"
    assert "note: " not in printed.err


def test_checking_neither_starts_nor_joins_ray(check):
    import ray

    check(config(), DIRECT)

    assert not ray.is_initialized()


def test_the_command_line_starts_without_vllm_or_ray():
    code = (
        "import sys; from serve_app.cli import main\n"
        "try: main(['check', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'vllm', 'torch', 'ray'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
