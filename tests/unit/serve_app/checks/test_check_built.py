"""``brimful check`` on what an application comes to: its deployments, and overrides of them."""

import pytest

from serve_app.checks.findings import Target
from tests.serve_configs import APP, DIRECT, ENTRY, HERE, config, put, refused

PLACE = "applications[0].args.llm_configs[0]"
OVER = "applications[0].deployments[0]"
MODEL = "BrimfulServer:m"
OURS = (MODEL, "AdmissionIngress")


def over(name, data=None, **options):
    return put(data or config(), (*APP, "deployments"), [{"name": name, **options}])


@pytest.mark.parametrize("name", ["LLMServer:m", "OpenAiIngress", "BrimfulServer:n", "LLMRouter"])
def test_an_override_of_a_deployment_that_is_not_there_is_named(check, name):
    (problem,) = check(over(name, num_replicas=2)).problems
    assert problem.startswith(f"{OVER}.name: {name!r} is not allowed: no deployment of this")
    assert MODEL in problem or "AdmissionIngress" in problem


@pytest.mark.parametrize(
    ("name", "target"),
    [(MODEL, HERE), (MODEL, DIRECT), ("AdmissionIngress", HERE), ("LLMRouter", DIRECT)],
)
def test_an_override_of_one_that_is_there_passes(check, name, target):
    assert check(over(name, max_ongoing_requests=100), target).problems == []


def test_direct_streaming_has_no_ingress_to_override(check):
    (problem,) = check(over("AdmissionIngress", max_ongoing_requests=100), DIRECT).problems
    assert problem.startswith(f"{OVER}.name: 'AdmissionIngress' is not allowed")


def test_one_replica_for_good_has_no_router_to_override(check):
    one = put(config(), (*ENTRY, "deployment_config"), {"num_replicas": 1})
    (problem,) = check(over("LLMRouter", one, max_ongoing_requests=10), DIRECT).problems
    assert problem.startswith(f"{OVER}.name: 'LLMRouter' is not allowed")


def test_an_ingress_of_another_name_is_known_by_it(check):
    named = put(config(), (*APP, "args", "ingress_deployment_config"), {"name": "Front"})
    assert check(over("Front", named, max_ongoing_requests=9)).problems == []


def test_a_fault_in_an_entry_is_not_told_again_as_a_missing_deployment(check):
    faulty = put(config(), (*ENTRY, "engine_kwargs", "max_num_seqs"), "64")
    (problem,) = check(over(MODEL, faulty, max_ongoing_requests=9)).problems
    assert "max_num_seqs" in problem


LIVE = [
    (
        {"batching": {"max_running": {"max": 100}}},
        f"{OVER}.user_config.batching.max_running.max: 100 is above max_num_seqs=64, the size the"
        " engine is started with; lower it or raise max_num_seqs",
    ),
    (
        {"classes": {"gold": {"ttft_ms": 300}}},
        f"{OVER}.user_config.classes: is not allowed where the entry has neither classes nor"
        " admission: the replica was started without them",
    ),
    (
        {"admission": {"longest_wait_s": 0}},
        f"{OVER}.user_config.admission.longest_wait_s: 0 is not allowed: seconds above 0 and up to"
        " 86400, or off",
    ),
]


@pytest.mark.parametrize(("user_config", "problem"), LIVE, ids=lambda one: str(one)[:20])
def test_a_user_config_is_held_against_its_entry(check, user_config, problem):
    assert check(over(MODEL, user_config=user_config)).problems == [problem]
    own = put(config(), (*ENTRY, "deployment_config", "user_config"), user_config)
    mine = problem.replace(OVER, f"{PLACE}.deployment_config")
    assert check(own).problems == [mine]


def test_a_user_config_that_its_entry_has_room_for_passes(check):
    data = put(config(), (*ENTRY, "classes"), {"gold": {"ttft_ms": 300}})
    live = {"batching": {"max_running": {"max": 64}}, "classes": {"iron": {"ttft_ms": 900}}}
    assert check(over(MODEL, data, user_config=live)).problems == []


def test_several_priorities_over_an_engine_without_them_are_named(check):
    data = put(config(), (*ENTRY, "admission"), {"max_waiting": 8})
    several = {"classes": {"gold": {"priority": 0, "default": True}, "iron": {"priority": 9}}}
    (problem,) = check(over(MODEL, data, user_config=several)).problems
    assert problem.startswith(f"{OVER}.user_config.classes: several priorities are not allowed")


def test_an_ingress_takes_security_and_no_more(check):
    name = "AdmissionIngress"
    assert check(over(name, user_config={"security": {"extra_paths": ["/load"]}})).problems == []
    assert check(over(name, user_config={"batching": {}})).problems == [
        refused(f"{OVER}.user_config", "batching", "an ingress takes security alone")
    ]
    (problem,) = check(over(name, user_config={"security": {"extra_path": []}})).problems
    assert problem.startswith(f"{OVER}.user_config.security: unknown key 'extra_path'")


CARDS = [
    ({"deployment_config": {"ray_actor_options": {"num_gpus": 1}}}, "comes to 2 GPUs"),
    (
        {
            "engine_kwargs": {"tensor_parallel_size": 4},
            "placement_group_config": {"bundles": [{"GPU": 1}, {"GPU": 1}]},
        },
        "2 bundles with a GPU, and tensor_parallel_size times pipeline_parallel_size is 4",
    ),
    (
        {
            "engine_kwargs": {"tensor_parallel_size": 4},
            "placement_group_config": {"bundles": [{"GPU": 4}]},
        },
        "comes to 4 GPUs",
    ),
]


@pytest.mark.parametrize(("options", "says"), CARDS, ids=lambda one: str(one)[:20])
def test_bundles_that_the_engine_could_not_use_are_named(check, options, says):
    data = config()
    for key, value in options.items():
        data = put(data, (*ENTRY, key), value)
    (problem,) = check(data).problems
    assert problem.startswith(f"{PLACE}: ") and says in problem


@pytest.mark.parametrize(
    "options",
    [
        {"engine_kwargs": {"tensor_parallel_size": 4}},
        {
            "engine_kwargs": {"tensor_parallel_size": 2},
            "placement_group_config": {"bundles": [{"GPU": 1, "CPU": 1}, {"GPU": 1}]},
        },
        {"placement_group_config": {"bundle_per_worker": {"GPU": 0.5}}},
        {
            "accelerator_config": {"kind": "cpu"},
            "placement_group_config": {"bundle_per_worker": {"CPU": 2}},
        },
    ],
    ids=lambda one: str(one)[:30],
)
def test_bundles_that_the_engine_can_use_pass(check, options):
    data = config()
    for key, value in options.items():
        data = put(data, (*ENTRY, key), value)
    assert check(data, Target(env=DIRECT.env, local_paths=False)).problems == []


def test_an_override_of_bundles_is_held_against_the_replica_and_its_engine(check):
    (small,) = check(over(MODEL, placement_group_bundles=[{"CPU": 0.5, "GPU": 1}])).problems
    assert small.startswith(f"{OVER}: ValueError: When using `placement_group_bundles`, the rep")
    (none,) = check(over(MODEL, placement_group_bundles=[{"CPU": 1}])).problems
    assert none.startswith(f"{OVER}: 0 bundles with a GPU")
