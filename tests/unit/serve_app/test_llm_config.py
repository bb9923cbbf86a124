"""An entry of ``llm_configs`` with our blocks, and what Ray Serve LLM is given for it."""

from typing import Any

import pytest
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from controller.classes import parse_classes
from controller.errors import ConfigError
from serve_app.autoscaling import CapacityPolicy
from serve_app.config import (
    AUTOSCALING_POLICY,
    EMULATED_SERVER,
    SCHEDULER,
    SERVER,
    parse_scaling,
    ray_llm_config,
)
from serve_app.haproxy import ENVIRONMENT

MODEL = {"model_id": "llama", "model_source": "org/llama"}


def entry(**keys: Any) -> dict[str, Any]:
    return {"model_loading_config": MODEL, "engine_kwargs": {"max_num_seqs": 64}} | keys


def brimful(made: dict[str, Any]) -> dict[str, Any]:
    return made["engine_kwargs"]["additional_config"]["brimful"]


def group(**keys: Any) -> str:
    return brimful(ray_llm_config(entry(**keys)))["group"]


def problems(where: str = "llm_configs[0]", **keys: Any) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        ray_llm_config(entry(**keys), where)
    return refused.value.problems


def scaling_of(given: Any, **keys: Any) -> dict[str, Any]:
    """The autoscaling block that this one becomes."""
    made = ray_llm_config(entry(deployment_config={"autoscaling_config": given}, **keys))
    known: dict[str, Any] = made["deployment_config"]["autoscaling_config"]
    return known


def test_what_the_user_gave_the_engine_besides_is_kept() -> None:
    mine = {"max_num_seqs": 64, "additional_config": {"mine": 1}, "block_size": 32}
    given = entry(engine_kwargs=mine)
    made = ray_llm_config(given)["engine_kwargs"]
    assert (made["block_size"], made["additional_config"]["mine"]) == (32, 1)
    assert given["engine_kwargs"] == {
        "max_num_seqs": 64,
        "additional_config": {"mine": 1},
        "block_size": 32,
    }


def test_a_replica_that_is_removed_has_time_to_end_its_streams() -> None:
    def timeout_s(**options: Any) -> float:
        made = ray_llm_config(entry(deployment_config=options))
        return float(made["deployment_config"]["graceful_shutdown_timeout_s"])

    assert timeout_s() == 1800 == int(ENVIRONMENT["RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"])
    assert timeout_s(graceful_shutdown_timeout_s=7) == 7


@pytest.mark.parametrize(
    "deployment", [{"num_replicas": "auto"}, {"autoscaling_config": {"max_replicas": 8}}]
)
def test_autoscaling_is_by_capacity_with_the_scaling_block(deployment: dict[str, Any]) -> None:
    made = ray_llm_config(entry(deployment_config=deployment, scaling={"drain_s": 5}))
    policy = made["deployment_config"]["autoscaling_config"]["policy"]
    assert policy["policy_function"] == AUTOSCALING_POLICY
    assert policy["policy_kwargs"] == parse_scaling({"drain_s": 5}).model_dump()
    CapacityPolicy(**policy["policy_kwargs"])


FLOOR = {"policy_function": "math:floor"}


def test_with_our_policy_ray_serve_waits_no_longer_than_it_is_told_to() -> None:
    assert scaling_of({"max_replicas": 3})["upscale_delay_s"] == 0
    assert scaling_of({"max_replicas": 3, "upscale_delay_s": 7})["upscale_delay_s"] == 7
    assert "upscale_delay_s" not in scaling_of({"policy": FLOOR})
    named = scaling_of({"max_replicas": 3, "policy": None})["policy"]["policy_function"]
    assert named == AUTOSCALING_POLICY


@pytest.mark.parametrize(
    "given",
    [
        AutoscalingConfig(policy={"policy_kwargs": {"late_frac": 0.01}}),
        AutoscalingConfig(policy={}),
        {"policy": AutoscalingPolicy(policy_kwargs={"late_frac": 0.01})},
        {"policy": AutoscalingPolicy()},
    ],
)
def test_an_object_with_rays_default_policy_names_none(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"autoscaling_config\.policy: .* names no policy_fun"):
        scaling_of(given)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"scaling": {"target_utilisation": 0.5}},
         "llm_configs[0].scaling: unknown key 'target_utilisation'; did you mean"
         " 'target_utilization'?"),
        ({"scaling": {"drain_s": 0}},
         "llm_configs[0].scaling.drain_s: 0 is not allowed: Input should be greater than 0"),
        ({"batching": {"max_running": {"max": 65}}},
         "llm_configs[0].batching.max_running.max: 65 is above max_num_seqs=64, the size the"
         " engine is started with; lower it or raise max_num_seqs"),
        ({"llm_engine": "SGLang"},
         "llm_configs[0].llm_engine: 'SGLang' is not allowed: only 'vLLM'"),
        ({"server_cls": "mine:Server"},
         f"llm_configs[0].server_cls: 'mine:Server' is not allowed: Brimful sets it to"
         f" {SERVER!r}; leave the key out, or serve this model by import_path:"
         " ray.serve.llm:build_openai_app, without our blocks"),
        ({"engine_kwargs": {"scheduler_cls": "mine.Scheduler"}},
         f"llm_configs[0].engine_kwargs.scheduler_cls: 'mine.Scheduler' is not allowed: Brimful"
         f" sets it to {SCHEDULER!r}; leave the key out"),
        ({"engine_kwargs": {"otlp_traces_endpoint": "http://h:1", "disable_log_stats": True}},
         "llm_configs[0].engine_kwargs.disable_log_stats: True is not allowed with"
         " otlp_traces_endpoint: vLLM makes its spans of these numbers, and its engine would end"
         " with the first request"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_name(keys: dict[str, Any], problem: str) -> None:
    assert problems(**keys) == [problem]


def test_replicas_of_one_config_are_one_group_named_after_the_model() -> None:
    assert group() == group()
    assert group().startswith("llama-")
    assert group(deployment_config={"num_replicas": 3}) == group()


@pytest.mark.parametrize(
    "other",
    [
        {"model_loading_config": MODEL | {"model_source": "org/llama-tuned"}},
        {"engine_kwargs": {"max_num_seqs": 128}},
        {"accelerator_type": "H100"},
        {"batching": {"sla": {"itl_ms": 50}}},
        {"emulate": {"profile": "paper-fig3"}},
    ],
    ids=lambda keys: next(iter(keys)),
)
def test_replicas_that_differ_in_what_a_step_takes_are_groups_apart(other: dict[str, Any]) -> None:
    assert group(**other) != group()
    assert group(emulate={"profile": "paper-fig3", "kv_tokens": 10_000}) != group(**other)


def test_an_emulated_accelerator_gets_its_server_and_slower_agreements() -> None:
    emulate = {"profile": "paper-fig3", "time_scale": 2.0, "kv_tokens": 3200}
    blocks = {"batching": {"sla": {"itl_ms": 50}}, "classes": CLASSES}
    made = ray_llm_config(entry(emulate=emulate, **blocks))
    assert brimful(made)["classes"]["fast"]["ttft_ms"] == 200
    assert made["server_cls"] == EMULATED_SERVER
    assert made["engine_kwargs"]["num_gpu_blocks_override"] == 101  # and vLLM's null block
    assert brimful(made)["batching"]["sla"]["itl_ms"] == 100
    assert brimful(made)["batching"]["sla"]["ttft_ms"] is None
    assert brimful(made)["emulate"]["time_scale"] == 2.0


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        ("engine_kwargs", {"engine_kwargs": 7}),
        ("deployment_config", {"deployment_config": "auto"}),
        ("engine_kwargs.additional_config", {"engine_kwargs": {"additional_config": True}}),
        ("deployment_config.autoscaling_config", {"deployment_config": {"autoscaling_config": 3}}),
    ],
)
def test_what_is_not_a_mapping_is_named(place: str, keys: dict[str, Any]) -> None:
    value = next(iter(keys.values()))
    value = next(iter(value.values())) if isinstance(value, dict) else value
    assert problems(**keys) == [
        f"llm_configs[0].{place}: {value!r} is not allowed: it must be a mapping"
    ]


CLASSES = {"fast": {"ttft_ms": 100, "default": True}, "batch": {"priority": 5, "sheddable": True}}


def test_classes_go_to_the_replica_and_order_the_engines_queue() -> None:
    made = ray_llm_config(entry(classes=CLASSES))
    assert parse_classes(brimful(made)["classes"]).default == "fast"
    assert made["engine_kwargs"]["scheduling_policy"] == "priority"
    assert "classes" not in made


@pytest.mark.parametrize(
    ("keys", "begins"),
    [
        (
            {"classes": CLASSES, "admission": {"longest_wait_s": "off"}},
            "admission.longest_wait_s: 'off' is not allowed with",
        ),
        (
            {"classes": CLASSES, "engine_kwargs": {"scheduling_policy": "fcfs"}},
            "engine_kwargs.scheduling_policy: 'fcfs' is not allowed",
        ),
        ({"classes": {"a": {"ttft": 1}}}, "classes.a: unknown key 'ttft'; did you mean 'ttft_ms'?"),
    ],
)
def test_what_is_wrong_with_classes_is_named(keys: dict[str, Any], begins: str) -> None:
    (line,) = problems(**keys)
    assert line.startswith(f"llm_configs[0].{begins}")
