"""What of a changed configuration reaches running replicas, and what starts new ones."""

import copy
from typing import Any

import pytest

from controller.errors import ConfigError
from serve_app.apply.changes import Changes, changes
from serve_app.apply.command import plan
from tests.serve_configs import config, put
from tests.serve_configs import entry as one_entry

ENTRY = ("args", "llm_configs", 0)
MODEL = "BrimfulServer:m"


def app(**blocks: Any) -> dict[str, Any]:
    """One application whose entry has two replicas for good."""
    fixed = {"deployment_config": {"num_replicas": 2}, **blocks}
    made: dict[str, Any] = config({**one_entry(), **fixed})["applications"][0]
    return made


def found(before: dict[str, Any], after: dict[str, Any], *names: str) -> Changes:
    before, after = copy.deepcopy(before), copy.deepcopy(after)
    kept = copy.deepcopy((before, after))
    result = changes(before, after, names)
    assert (before, after) == kept
    return result


def sent(change: Changes, before: dict[str, Any]) -> dict[str, Any]:
    """The overrides by name; all the rest is as it ran, so that Serve keeps every replica."""
    rest = {k: v for k, v in change.application.items() if k != "deployments"}
    assert rest == {k: v for k, v in before.items() if k != "deployments"}
    return {one["name"]: one for one in change.application.get("deployments", [])}


SLA = {"sla": {"itl_ms": 80}, "max_running": {"min": 2, "max": 64}}


SAID = put(app(), ("route_prefix",), "/")
NAMED = put(app(), ("name",), "default")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (app(), app()),
        # A default of Ray Serve's that one side does not say.
        (SAID, {k: v for k, v in SAID.items() if k != "route_prefix"}),
        (NAMED, {k: v for k, v in NAMED.items() if k != "name"}),
        # Another name of our builder.
        (app(), put(app(), ("import_path",), "serve_app.build:build_app")),
    ],
    ids=["same", "route", "name", "builder"],
)
def test_the_same_changes_nothing(before: Any, after: Any) -> None:
    for change in (found(before, after), found(after, before)):
        assert (change.live, change.restarts) == ([], [])
    assert found(before, before).application == before


def test_under_an_sla_the_longest_wait_changes_while_replicas_run() -> None:
    off = {"longest_wait_s": "off"}
    change = found(app(), app(admission=off))
    assert change.restarts == []
    assert change.live == [f"{MODEL}.admission.longest_wait_s: unset -> 'off'"]
    assert sent(change, app())[MODEL]["user_config"] == {"admission": off}
    assert found(
        app(batching={}), app(batching={}, admission=off)
    ).restarts  # nothing refuses there
    assert found(app(admission=off), app()).restarts


def test_a_second_change_starts_from_what_holds_and_the_way_back_sends_none() -> None:
    running = found(app(), app(batching=SLA)).application
    third = put(app(batching=SLA), (*ENTRY, "batching", "sla", "itl_ms"), 90)
    assert found(running, third).live == [f"{MODEL}.batching.sla.itl_ms: 80 -> 90"]
    assert found(running, app(batching=SLA)).live == []
    back = found(running, app())
    assert back.live == [f"{MODEL}.batching.sla.itl_ms: 80 -> 50"]
    assert sent(back, app()) == {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*ENTRY, "engine_kwargs", "max_num_seqs"), 128),
        ((*ENTRY, "model_loading_config", "model_source"), "org/other"),
        ((*ENTRY, "runtime_env"), {"env_vars": {"A": "1"}}),
        ((*ENTRY, "deployment_config", "ray_actor_options"), {"num_cpus": 2}),
        ((*ENTRY, "classes"), {"gold": {"ttft_ms": 300}}),
        ((*ENTRY, "router"), {"policy": "round_robin"}),
        (("runtime_env",), {"env_vars": {"A": "1"}}),
        (("route_prefix",), "/other"),
        (("route_prefix",), None),
        (("import_path",), "ray.serve.llm:build_openai_app"),
        (("deployments",), [{"name": MODEL, "ray_actor_options": {"num_cpus": 2}}]),
    ],
    ids=lambda one: ".".join(map(str, one)) if isinstance(one, tuple) else "",
)
def test_what_an_engine_starts_with_takes_new_replicas(path: Any, value: Any) -> None:
    assert found(app(), put(app(), path, value)).restarts


@pytest.mark.parametrize("before", [None, {"TOKEN": "hunter1", "OTHER": "1"}])
@pytest.mark.parametrize(
    "path",
    [
        ("runtime_env", "env_vars"),
        (*ENTRY, "runtime_env", "env_vars"),
        (*ENTRY, "deployment_config", "ray_actor_options", "runtime_env", "env_vars"),
    ],
    ids=str,
)
def test_no_value_of_a_variable_is_printed(path: Any, before: Any) -> None:
    old, new = put(app(), path, before), put(app(), path, {"TOKEN": "hunter2", "OTHER": "1"})
    lines = found(old, new).restarts
    assert lines[0].endswith("env_vars.TOKEN: changed")
    assert "hunter" not in "".join(lines)


def test_no_secret_is_printed_of_what_is_compared_as_a_whole() -> None:
    theirs = put(app(), ("import_path",), "ray.serve.llm:build_openai_app")
    other = put(theirs, (*ENTRY, "engine_kwargs", "api_key"), "hunter2")
    other["deployments"] = [{"name": "x", "ray_actor_options": {"env_vars": {"A": "hunter2"}}}]
    other["runtime_env"] = {"working_dir": "https://me:hunter2@host/code.zip"}
    lines = "".join(found(theirs, other).restarts)
    assert "hunter2" not in lines
    assert "https://...@host/code.zip" in lines


@pytest.mark.parametrize("ingress", [True, False])
def test_limits_at_the_door_reach_replicas_and_the_ingress(ingress: bool) -> None:
    after = put(app(), ("args", "security"), {"extra_paths": ["/load"]})
    change = found(app(), after, MODEL, *(["AdmissionIngress"] if ingress else []))
    block_ = {"user_config": {"security": {"keys": None, "extra_paths": ["/load"]}}}
    names = [MODEL, "AdmissionIngress"] if ingress else [MODEL]
    assert sent(change, app()) == {name: {"name": name, **block_} for name in names}


def test_an_override_in_the_file_wins_and_stays() -> None:
    mine = {"name": MODEL, "user_config": {"batching": SLA}, "max_queued_requests": 5}
    after = put(app(), ("deployments",), [mine])
    change = found(app(), after)
    assert sent(change, app()) == {MODEL: mine}
    assert f"{MODEL}.batching.sla.itl_ms: 50 -> 80" in change.live


def running(application: dict[str, Any], replicas: int = 1, name: str = MODEL) -> dict[str, Any]:
    deployments = {name: {"target_num_replicas": replicas}}
    return {"llm": {"deployed_app_config": application, "deployments": deployments}}


def test_what_running_replicas_would_refuse_is_named_before_it_is_sent() -> None:
    wrong = put(app(), (*ENTRY, "batching", "max_running", "max"), 65)
    both = put(wrong, (*ENTRY, "engine_kwargs", "max_num_seqs"), 65)
    with pytest.raises(ConfigError, match="65 is above max_num_seqs=64"):
        plan({"applications": [both]}, running(app()))


@pytest.mark.parametrize(
    ("path", "value", "name", "is_gone"),
    [
        ((*ENTRY, "batching"), SLA, MODEL, False),
        ((*ENTRY, "model_loading_config", "model_id"), "n", MODEL, True),
        ((*ENTRY, "deployment_config", "name"), "n", MODEL, True),
        ((*ENTRY, "emulate"), {"profile": "h100-llama-8b-vllm"}, MODEL, True),
        (("import_path",), "ray.serve.llm:build_openai_app", MODEL, True),
        (("import_path",), "mine:build", MODEL, True),
        (("import_path",), "serve_app:build_app", "LLMServer:m", True),
    ],
    ids=str,
)
def test_a_deployment_of_another_name_is_one_that_is_gone(
    path: Any, value: Any, name: str, is_gone: bool
) -> None:
    assert found(app(), put(app(), path, value), name).gone == ([name] if is_gone else [])
