"""``brimful check`` on what an application comes to: its deployments, and overrides of them."""

import pytest

from serve_app.checks.findings import Target
from tests.serve_configs import DIRECT, HERE, PLACE, having, refused

OVER = "applications[0].deployments[0]"
MODEL, INGRESS = "BrimfulServer:m", "AdmissionIngress"


def over(name, data=None, **options):
    return having("/deployments", [{"name": name, **options}], data)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *[(name, HERE) for name in ("LLMServer:m", "OpenAiIngress", "BrimfulServer:n")],
        ("LLMRouter", HERE),
        (INGRESS, DIRECT),  # direct streaming has no ingress
    ],
)
def test_an_override_of_a_deployment_that_is_not_there_is_named(check, name, target):
    (problem,) = check(over(name, max_ongoing_requests=9), target).problems
    assert problem.startswith(f"{OVER}.name: {name!r} is not allowed: no deployment of this")
    assert MODEL in problem or INGRESS in problem


@pytest.mark.parametrize(
    ("name", "target"), [(MODEL, HERE), (MODEL, DIRECT), (INGRESS, HERE), ("LLMRouter", DIRECT)]
)
def test_an_override_of_one_that_is_there_passes(check, name, target):
    assert check(over(name, max_ongoing_requests=100), target).problems == []


def test_one_replica_for_good_has_no_router_to_override(check):
    one = having("deployment_config", {"num_replicas": 1})
    (problem,) = check(over("LLMRouter", one, max_ongoing_requests=10), DIRECT).problems
    assert problem.startswith(f"{OVER}.name: 'LLMRouter' is not allowed")


def test_an_ingress_of_another_name_is_known_by_it(check):
    named = having("/args.ingress_deployment_config", {"name": "Front"})
    assert check(over("Front", named, max_ongoing_requests=9)).problems == []


def test_a_fault_in_an_entry_is_not_told_again_as_a_missing_deployment(check):
    faulty = having("engine_kwargs.max_num_seqs", "64")
    (problem,) = check(over(MODEL, faulty, max_ongoing_requests=9)).problems
    assert "max_num_seqs" in problem


@pytest.mark.parametrize(
    ("user_config", "problem"),
    [
        ({"batching": {"max_running": {"max": 100}}},
         ".batching.max_running.max: 100 is above max_num_seqs=64, the size the engine is"
         " started with; lower it or raise max_num_seqs"),
        ({"classes": {"gold": {"ttft_ms": 300}}},
         ".classes: is not allowed where the entry has neither classes nor admission: the"
         " replica was started without them"),
        ({"admission": {"longest_wait_s": 0}},
         ".admission.longest_wait_s: 0 is not allowed: seconds above 0 and up to 86400, or off"),
        ({"batching": {"lease_s": 0}}, ".batching.lease_s: 0 is not allowed"),
        ({"batching": 5}, ".batching: 5 is not allowed"),
        ({"any": 1}, ": unknown key 'any'; allowed: admission, batching"),
    ],
    ids=str,
)  # fmt: skip
def test_a_user_config_is_held_against_its_entry(check, user_config, problem):
    (theirs,) = check(over(MODEL, user_config=user_config)).problems
    (own,) = check(having("deployment_config.user_config", user_config)).problems
    assert theirs.startswith(f"{OVER}.user_config{problem}")
    assert own == theirs.replace(OVER, f"{PLACE}.deployment_config")


def test_a_user_config_that_its_entry_has_room_for_passes(check):
    data = having("classes", {"gold": {"ttft_ms": 300}})
    live = {
        "batching": {"max_running": {"max": 64}, "lease_s": 5},
        "classes": {"iron": {"ttft_ms": 900}},
    }
    assert check(over(MODEL, data, user_config=live)).problems == []


def test_several_priorities_over_an_engine_without_them_are_named(check):
    data = having("admission", {"max_waiting": 8})
    several = {"classes": {"gold": {"priority": 0, "default": True}, "iron": {"priority": 9}}}
    (problem,) = check(over(MODEL, data, user_config=several)).problems
    assert problem.startswith(f"{OVER}.user_config.classes: several priorities are not allowed")


def test_an_ingress_takes_security_and_no_more(check):
    known = {"security": {"extra_paths": ["/load"]}}
    assert check(over(INGRESS, user_config=known)).problems == []
    assert check(over(INGRESS, user_config={"batching": {}})).problems == [
        refused(f"{OVER}.user_config", "batching", "an ingress takes security alone")
    ]
    (problem,) = check(over(INGRESS, user_config={"security": {"extra_path": []}})).problems
    assert problem.startswith(f"{OVER}.user_config.security: unknown key 'extra_path'")


TP, BUNDLES = "engine_kwargs.tensor_parallel_size", "placement_group_config.bundles"
BUNDLE = "placement_group_config.bundle_per_worker"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"deployment_config.ray_actor_options": {"num_gpus": 1}}, "comes to 2 GPUs"),
        (
            {TP: 4, BUNDLES: [{"GPU": 1}, {"GPU": 1}]},
            "2 bundles with a GPU, and tensor_parallel_size times pipeline_parallel_size is 4",
        ),
        ({TP: 4, BUNDLES: [{"GPU": 4}]}, "comes to 4 GPUs"),
        ({TP: 8_000_000}, "is 8000000, which is not allowed: at most 4096"),
        ({TP: 4}, None),
        ({TP: 2, BUNDLES: [{"GPU": 1, "CPU": 1}, {"GPU": 1}]}, None),
        ({BUNDLE: {"GPU": 0.5}}, None),
        ({"accelerator_config": {"kind": "cpu"}, BUNDLE: {"CPU": 2}}, None),
    ],
    ids=str,
)
def test_bundles_are_held_against_what_the_engine_can_use(check, options, says):
    data = None
    for path, value in options.items():
        data = having(path, value, data)
    problems = check(data, Target(env=DIRECT.env, local_paths=False)).problems
    if says is None:
        assert problems == []
    else:
        (problem,) = problems
        assert problem.startswith(f"{PLACE}: ") and says in problem


def test_an_override_of_bundles_is_held_against_the_replica_and_its_engine(check):
    (small,) = check(over(MODEL, placement_group_bundles=[{"CPU": 0.5, "GPU": 1}])).problems
    assert small.startswith(f"{OVER}: ValueError: When using `placement_group_bundles`, the rep")
    (none,) = check(over(MODEL, placement_group_bundles=[{"CPU": 1}])).problems
    assert none.startswith(f"{OVER}: 0 bundles with a GPU")
