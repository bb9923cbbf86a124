"""``brimful check`` on Serve configurations: each wrong input and the one line it gets."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.checks.findings import DIRECT_STREAMING, FORWARD_BODY, HA_PROXY, Target
from tests.serve_configs import APP, DIRECT, ENTRY, HERE, config, entry, put, refused, unknown

ROOT = Path(__file__).parents[4]
ARGS = "applications[0].args"
PLACE = f"{ARGS}.llm_configs[0]"


def test_a_sound_config_is_described(check):
    found = check(config(), DIRECT)

    assert found.problems == []
    assert found.notes == []
    assert found.summary == [
        "llm at /: model m, policy adaptive, 50 ms between tokens at p99, 2 to 64 running,"
        " 1 to 3 replicas"
    ]


def test_arguments_that_ray_serve_llm_refuses_only_on_building_are_found(check):
    data = put(config(), (*ENTRY, "engine_kwargs", "model"), "org/other")

    assert check(data).problems == [
        f"{PLACE}: ValueError: model or served_model_name is not allowed in engine_kwargs when"
        " using Ray Serve LLM. Please use `model_loading_config` in LLMConfig instead."
    ]


def test_all_problems_are_reported_together(check):
    data = put(config(), (*ENTRY, "batching", "sla", "itl_ms"), 0)
    data = put(data, (*ENTRY, "engine_kwargs", "max_num_seq"), 3)
    data = put(data, (*ENTRY, "scaling", "drain_s"), -1)
    data = put(data, (*APP, "runtim_env"), {})

    places = [problem.split(": ")[0] for problem in check(data).problems]
    assert places == [
        "applications[0]",
        f"{PLACE}.engine_kwargs",
        f"{PLACE}.batching.sla.itl_ms",
        f"{PLACE}.scaling.drain_s",
    ]


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
    data = put(config(), (*APP, "import_path"), "other:app")
    data = put(data, (*APP, "args"), {"anything": {"goes": 1}})

    found = check(data)
    assert found.problems == []
    assert found.summary == ["llm at /: other:app, checked by Ray Serve's schema only"]


def test_a_single_application_at_the_top_level_is_checked_and_refused(check):
    data = put(config(), (*ENTRY, "scaling", "drain"), 3)["applications"][0]

    assert check(data).problems == [
        "applications: required key is missing; Ray Serve no longer takes a single application at"
        " the top level: put it into this list",
        unknown(f"{PLACE}.scaling", "drain", "drain_s"),
    ]


def two_models() -> dict[str, Any]:
    return config(entry(), put(entry(), ("model_loading_config", "model_id"), "n"))


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
    data = put(config(), (*APP, "args", "ingress_deployment_config"), {"num_replicas": 2})

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
    data = put(config(), (*ENTRY, "lora_config"), {"dynamic_lora_loading_path": "s3://b/lora"})

    assert check(data, DIRECT).problems == [
        f'{ARGS}.llm_configs: LoRA with direct streaming needs {FORWARD_BODY}="1"'
    ]
    forwarding = Target(env={**DIRECT.env, FORWARD_BODY: "1"}, local_paths=True)
    assert check(data, forwarding).problems == []


def test_two_models_of_one_application_need_two_names(check):
    place = f"{ARGS}.llm_configs[1].model_loading_config.model_id"

    assert check(config(entry(), entry())).problems == [
        refused(place, "m", "another model of this application has it already")
    ]


def test_an_entry_may_stand_in_a_file_of_its_own(check, tmp_path):
    path = tmp_path / "model.yaml"
    data = put(config(), ENTRY, str(path))

    assert check(data).problems == [f"{PLACE}: {path}: cannot read it: No such file or directory"]

    path.write_text("- a\n")
    assert check(data).problems == [f'{PLACE}: {path}: must hold a mapping, got ["a"]']

    path.write_text(yaml.safe_dump(put(entry(), ("scaling", "drain"), 1)))
    assert check(data).problems == [unknown(f"{PLACE} ({path}).scaling", "drain", "drain_s")]

    path.write_text(yaml.safe_dump(entry()))
    assert check(data).problems == []


def test_a_block_without_effect_is_noted(check):
    data = put(config(), (*ENTRY, "deployment_config"), {"num_replicas": 1})

    assert check(data).notes == [
        f"{PLACE}.scaling: has no effect without deployment_config.autoscaling_config"
    ]


def test_affinity_to_prefixes_that_the_router_does_not_see_is_noted(check):
    data = put(config(), (*ENTRY, "router"), {"prefix_affinity": True})
    forwarding = Target(env={**DIRECT.env, FORWARD_BODY: "1"}, local_paths=True)

    (note,) = check(data, DIRECT).notes
    assert note.startswith(f"{PLACE}.router.prefix_affinity: has no effect without {FORWARD_BODY}")
    assert check(data, forwarding).notes == check(data).notes == []


def test_classes_that_the_router_does_not_see_are_noted(check):
    data = put(config(), (*ENTRY, "router"), {"gather_classes": True})
    classes = {"gold": {"itl_ms": 50}, "batch": {"default": True}}
    data = put(data, (*ENTRY, "classes"), classes)
    forwarding = Target(env={**DIRECT.env, FORWARD_BODY: "1"}, local_paths=True)

    (note,) = check(data, DIRECT).notes
    assert note.startswith(f"{PLACE}.router.gather_classes: has no effect without {FORWARD_BODY}")
    assert check(data, forwarding).notes == []


def test_what_running_engines_would_refuse_of_a_user_config_is_found(check):
    live = {"name": "BrimfulServer:m", "user_config": {"batching": {"lease_s": 0}}}
    (problem,) = check(put(config(), (*APP, "deployments"), [live])).problems
    place = "applications[0].deployments[0].user_config.batching.lease_s"
    assert problem.startswith(f"{place}: 0 is not allowed")
    live["user_config"]["batching"]["lease_s"] = 5
    assert check(put(config(), (*APP, "deployments"), [live])).problems == []


@pytest.mark.parametrize(
    ("user_config", "problem"),
    [
        ({"batching": {"lease_s": 0}}, "batching.lease_s: 0 is not allowed"),
        ({"batching": 5}, "batching: 5 is not allowed"),
        ({"any": 1}, "user_config: unknown key 'any'; allowed: admission, batching"),
    ],
)
def test_so_is_it_where_the_entrys_own_deployment_has_it(check, user_config, problem):
    found = check(put(config(), (*ENTRY, "deployment_config", "user_config"), user_config))
    (line,) = found.problems
    assert line.startswith(f"{PLACE}.deployment_config.user_config")
    assert problem in line


@pytest.mark.parametrize("wrong", [5, "abc", [1], 2.5, b"x"])
def test_an_additional_config_that_is_no_mapping_is_a_finding(check, wrong):
    found = check(put(config(), (*ENTRY, "engine_kwargs", "additional_config"), wrong))
    assert any("engine_kwargs.additional_config" in line for line in found.problems)


def test_a_wrong_router_block_is_said_once(check):
    assert check(put(config(), (*ENTRY, "router"), {"choice": 3})).problems == [
        unknown(f"{PLACE}.router", "choice", "choices")
    ]


def test_a_bound_without_an_engine_size_is_noted(check):
    (note,) = check(put(config(), (*ENTRY, "engine_kwargs"), {})).notes

    assert note.startswith(f"{PLACE}.engine_kwargs: without max_num_seqs vLLM chooses it")


def test_what_ray_will_refuse_later_is_noted(check):
    data = put(
        config(), (*ENTRY, "deployment_config", "autoscaling_config", "look_back_period_s"), 5
    )

    found = check(data)
    assert found.problems == []
    assert [note[:20] for note in found.notes] == ["`look_back_period_s`"]


def test_a_config_without_applications_is_noted(check):
    found = check({"applications": []})

    assert found.problems == []
    assert found.notes == ["applications: none; deploying this removes all that run"]


def test_a_document_that_is_no_mapping_is_named(check):
    assert check("- a\n- b\n").problems == ['top level: must be a mapping, got ["a", "b"]']


def test_serve_reads_one_document_only(check):
    assert check("applications: []\n---\nb: 1\n").problems == [
        "2 YAML documents; Ray Serve reads the first one only"
    ]


def test_checking_neither_starts_nor_joins_ray(check):
    import ray

    check(config(), DIRECT)

    assert not ray.is_initialized()


def test_classes_are_checked_and_described(check):
    three = {"fast": {"priority": 0}, "slow": {"priority": 9, "sheddable": True, "default": True}}
    found = check(config({**entry(), "classes": three}))
    assert found.problems == []
    assert "classes fast, slow" in "\n".join(found.summary)
    wrong = {"fast": {"ttft": 1}, "slow": {}}
    found = check(config({**entry(), "classes": wrong, "admission": {"shed_at": 2}}))
    assert [line.partition(": ")[0].rpartition("].")[2] for line in found.problems] == [
        "admission.shed_at",
        "classes.fast",
    ]
