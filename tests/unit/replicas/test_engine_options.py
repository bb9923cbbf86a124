"""Engine options that the control cannot serve, and where an entry's model runs."""

from typing import Any

import pytest

from controller.errors import ConfigError
from controller.records import EngineLimits
from replicas.engine.engine_options import larger_batch, option_problems
from replicas.engine.executor import accelerator_kind, executor_of
from serve_app.config import ray_llm_config
from tests.builders import batching

ADAPTIVE: dict[str, Any] = {"policy": "adaptive", "sla": {"itl_ms": 50}}


def refused(block: dict[str, Any], leased: bool = True, **options: Any) -> list[str]:
    lines = option_problems(batching(**block), options, "engine", has_controller=leased)
    return [line.split(":")[0].removeprefix("engine.") for line in lines]


WHOLE = {"enable_chunked_prefill": False, "disable_chunked_mm_input": True}
TIMED = {"prefill_schedule_interval": 4, "long_prefill_token_threshold_adaptive": True}
PAPER = {"policy": "paper", "sla": {"itl_ms": 50}}
SERVED = {
    "enable_chunked_prefill": True,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "runner": "generate",
    "tensor_parallel_size": 8,
    "decode_context_parallel_size": 2,
    "scheduling_policy": "priority",
    "async_scheduling": True,
    "long_prefill_token_threshold": 512,
    "speculative_config": {"method": "ngram"},
    "kv_transfer_config": {"kv_connector": "NixlConnector"},
}


@pytest.mark.parametrize(
    ("block", "options", "problems"),
    [
        # What an SLA by steps cannot be kept with.
        *((ADAPTIVE, {name: value}, [name]) for name, value in WHOLE.items()),
        *((ADAPTIVE, {name: value}, [name]) for name, value in TIMED.items()),
        (ADAPTIVE, {"prefill_schedule_interval": 1}, []),
        ({"policy": "adaptive"}, TIMED, []),
        (PAPER, TIMED, []),
        (ADAPTIVE, {"pipeline_parallel_size": 2}, ["pipeline_parallel_size"]),
        (ADAPTIVE, {"runner": "pooling"}, ["runner"]),
        (ADAPTIVE, {"diffusion": True}, ["diffusion"]),
        (ADAPTIVE, {"data_parallel_size": 2}, ["data_parallel_size"]),
        (ADAPTIVE, {}, []),
        (ADAPTIVE, SERVED, []),
        # Whole prompts are served if nothing cuts them; the paper's chunk does.
        ({"policy": "adaptive"}, WHOLE, []),
        ({"policy": "static", "sla": {"itl_ms": 50}}, WHOLE, []),
        (PAPER, WHOLE, []),
        ({**ADAPTIVE, "enforce": False}, WHOLE, []),
        ({**PAPER, "paper": {"size_chunk": True}}, WHOLE, ["enable_chunked_prefill"]),
        # Without an SLA stages of a pipeline are served.
        ({"policy": "adaptive"}, {"pipeline_parallel_size": 4, "runner": "pooling"}, []),
    ],
)
def test_what_the_control_cannot_serve_is_refused_and_only_that(block, options, problems):
    assert set(problems) <= set(refused(block, **options))
    assert bool(problems) == bool(refused(block, **options))


def test_ranks_without_a_controller_each_go_by_themselves() -> None:
    assert refused(ADAPTIVE, leased=False, data_parallel_size=2) == []


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


@pytest.mark.parametrize(
    ("kv_tokens", "max_model_len", "most"),
    [(300 * 1024, 32_768, 300), (256 * 1024, None, None), (300 * 512, 512, 300), (0, None, None)],
)
def test_the_flag_for_a_larger_batch_is_named_if_memory_holds_one(
    kv_tokens: int, max_model_len: int | None, most: int | None
) -> None:
    said = larger_batch(EngineLimits(256, 8192, kv_tokens, 16, max_model_len=max_model_len))
    assert (said is None) == (most is None)
    assert most is None or f"--max-num-seqs {most}" in str(said)


@pytest.mark.parametrize("backend", ["mp", "ray", "uni"])
def test_vllms_own_key_is_refused_where_it_would_be_overruled(backend: str) -> None:
    keys = {"distributed_executor_backend": backend}
    with pytest.raises(ConfigError) as refused:
        ray_llm_config({"model_loading_config": MODEL, **CPU, "engine_kwargs": keys}, "e")
    assert refused.value.problems == [
        f"e.engine_kwargs.distributed_executor_backend: {backend!r} is not allowed:"
        " engine.executor says where the model runs (in_process); leave the key out"
    ]
