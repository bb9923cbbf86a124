"""Where an entry's model runs: the default, and what is refused."""

from typing import Any

import pytest

from controller.errors import ConfigError
from replicas.engine.executor import accelerator_kind, executor_of
from serve_app.config import ray_llm_config

MODEL = {"model_id": "llama", "model_source": "org/llama"}
CPU = {"accelerator_config": {"kind": "cpu"}}
PARTS = "tensor_parallel_size"


def asked(executor: str | None, sharded: dict[str, int] | None = None, **keys: Any) -> str:
    return executor_of({"engine": {"executor": executor}, "engine_kwargs": sharded, **keys}, "e")


def refusal(executor: str, sharded: dict[str, int] | None = None, **keys: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        asked(executor, sharded, **keys)
    (problem,) = refused.value.problems
    return problem.removeprefix(f"e.engine.executor: {executor!r} is not allowed: ")


@pytest.mark.parametrize(
    ("entry", "executor"),
    [
        (CPU, "in_process"),
        ({**CPU, "engine": {}}, "in_process"),
        ({**CPU, "engine": None}, "in_process"),
        ({**CPU, "engine_kwargs": {PARTS: 1}}, "in_process"),
        ({**CPU, "engine_kwargs": {PARTS: None}}, "in_process"),
        ({**CPU, "engine_kwargs": {PARTS: 2}}, "mp"),
        ({**CPU, "engine_kwargs": {"pipeline_parallel_size": 2}}, "mp"),
        ({}, "ray"),
        ({"accelerator_type": "H100"}, "ray"),
        ({"accelerator_type": "TPU-V6E"}, "ray"),
    ],
)
def test_only_one_worker_on_cpu_runs_in_process_by_default(entry, executor):
    assert executor_of(entry, "e") == executor


@pytest.mark.parametrize(
    ("executor", "keys"), [("in_process", CPU), ("mp", CPU), ("in_process", {}), ("ray", {})]
)
def test_what_is_asked_for_is_taken_where_it_can_run(executor: str, keys: dict[str, Any]) -> None:
    assert asked(executor, **keys) == executor


@pytest.mark.parametrize(
    ("executor", "sharded", "keys", "said"),
    [
        ("ray", None, CPU, "Ray Serve LLM starts workers on cpu by mp; allowed: in_process, mp"),
        ("mp", None, {}, "Ray Serve LLM starts workers on gpu by ray; allowed: in_process, ray"),
        (
            "in_process",
            {PARTS: 2},
            {},
            "engine_kwargs.tensor_parallel_size: 2 needs a worker process for each part of the"
            " model; allowed: ray",
        ),
        (
            "in_process",
            {PARTS: 2, "pipeline_parallel_size": 3, "prefill_context_parallel_size": 1},
            CPU,
            "engine_kwargs.tensor_parallel_size: 2 and engine_kwargs.pipeline_parallel_size: 3",
        ),
        (
            "in_process",
            None,
            {"accelerator_config": {"kind": "tpu"}},
            "a worker on a TPU is started by Ray; allowed: ray",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_what_can(executor, sharded, keys, said):
    assert refusal(executor, sharded, **keys).startswith(said)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"executer": "ray"}, "e.engine: unknown key 'executer'; did you mean 'executor'?"),
        (
            {"executor": "uni"},
            "e.engine.executor: 'uni' is not allowed: Input should be 'in_process', 'mp' or 'ray'",
        ),
    ],
)
def test_a_wrong_block_is_named(block: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        executor_of({"engine": block}, "e")
    assert refused.value.problems == [problem]


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({}, "gpu"),
        ({"accelerator_config": {"kind": "cpu"}, "accelerator_type": "H100"}, "cpu"),
        ({"placement_group_config": {}}, "gpu"),
        ({"placement_group_config": {"bundle_per_worker": {"CPU": 1}}}, "cpu"),
        ({"placement_group_config": {"bundle_per_worker": {"GPU": 0.5}}}, "gpu"),
        ({"placement_group_config": {"bundles": [{"CPU": 1}, {"TPU": 4}]}}, "tpu"),
        ({"placement_group_config": {"bundles": 3}}, "cpu"),
        ({"accelerator_type": "TPU-V4"}, "tpu"),
    ],
)
def test_the_kind_of_accelerator_is_read_from_the_entry(entry: dict[str, Any], kind: str) -> None:
    assert accelerator_kind(entry) == kind


def test_an_emulated_accelerator_brings_its_executor() -> None:
    entry = {"model_loading_config": MODEL, **CPU, "emulate": {"profile": "paper-fig3"}}
    with pytest.raises(ConfigError) as refused:
        ray_llm_config({**entry, "engine": {"executor": "mp"}})
    assert refused.value.problems == [
        "llm_configs[0].engine: is not allowed with emulate, which brings an executor; leave one of"
        " them out"
    ]


def test_what_is_learnt_in_process_is_not_pooled_with_workers_beside() -> None:
    entry = {"model_loading_config": MODEL, **CPU}
    groups = {
        ray_llm_config({**entry, "engine": engine})["engine_kwargs"]["additional_config"][
            "brimful"
        ]["group"]
        for engine in ({"executor": "mp"}, {"executor": "in_process"}, None)
    }
    assert len(groups) == 2  # in_process is the default on CPU


@pytest.mark.parametrize(("backend", "executor"), [(None, None), ("mp", "mp")])
def test_vllms_own_key_may_say_the_same(backend: str | None, executor: str | None) -> None:
    keys = {"distributed_executor_backend": backend}
    entry = {"model_loading_config": MODEL, **CPU, "engine_kwargs": keys}
    assert ray_llm_config({**entry, "engine": {"executor": executor}})["server_cls"]


@pytest.mark.parametrize("backend", ["mp", "ray", "uni"])
def test_vllms_own_key_is_refused_where_it_would_be_overruled(backend: str) -> None:
    keys = {"distributed_executor_backend": backend}
    with pytest.raises(ConfigError) as refused:
        ray_llm_config({"model_loading_config": MODEL, **CPU, "engine_kwargs": keys}, "e")
    assert refused.value.problems == [
        f"e.engine_kwargs.distributed_executor_backend: {backend!r} is not allowed:"
        " engine.executor says where the model runs (in_process); leave the key out"
    ]
