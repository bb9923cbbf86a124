"""Engine options that the control cannot serve are refused, and only those."""

from typing import Any

import pytest

from replicas.engine_options import option_problems
from tests.builders import batching

ADAPTIVE: dict[str, Any] = {"policy": "adaptive", "sla": {"itl_ms": 50}}


def refused(block: dict[str, Any], leased: bool = True, **options: Any) -> list[str]:
    lines = option_problems(batching(**block), options, "engine", leased=leased)
    return [line.split(":")[0].removeprefix("engine.") for line in lines]


@pytest.mark.parametrize(
    "option",
    [
        {"enable_chunked_prefill": False},
        {"disable_chunked_mm_input": True},
        {"pipeline_parallel_size": 2},
        {"runner": "pooling"},
        {"diffusion": True},
        {"data_parallel_size": 2},
    ],
)
def test_what_an_sla_by_steps_cannot_be_kept_with_is_refused(option: dict[str, Any]) -> None:
    assert refused(ADAPTIVE, **option) == list(option)


def test_vllms_defaults_and_what_is_served_pass() -> None:
    assert refused(ADAPTIVE) == []
    assert (
        refused(
            ADAPTIVE,
            enable_chunked_prefill=True,
            pipeline_parallel_size=1,
            data_parallel_size=1,
            runner="generate",
            tensor_parallel_size=8,
            decode_context_parallel_size=2,
            scheduling_policy="priority",
            async_scheduling=True,
            long_prefill_token_threshold=512,
            speculative_config={"method": "ngram"},
            kv_transfer_config={"kv_connector": "NixlConnector"},
        )
        == []
    )


@pytest.mark.parametrize(
    "block",
    [
        {"policy": "adaptive"},
        {"policy": "static", "sla": {"itl_ms": 50}},
        {"policy": "paper", "sla": {"itl_ms": 50}},
        {"policy": "adaptive", "sla": {"itl_ms": 50}, "enforce": False},
    ],
)
def test_whole_prompts_are_served_where_nobody_cuts_them(block: dict[str, Any]) -> None:
    assert refused(block, enable_chunked_prefill=False, disable_chunked_mm_input=True) == []


def test_the_papers_chunk_cuts_prompts_too() -> None:
    block = {"policy": "paper", "sla": {"itl_ms": 50}, "paper": {"size_chunk": True}}
    assert refused(block, enable_chunked_prefill=False) == ["enable_chunked_prefill"]


def test_without_an_sla_stages_of_a_pipeline_are_served() -> None:
    assert refused({"policy": "adaptive"}, pipeline_parallel_size=4, runner="pooling") == []


def test_ranks_without_a_controller_each_go_by_themselves() -> None:
    assert refused(ADAPTIVE, leased=False, data_parallel_size=2) == []


def test_the_line_names_key_value_reason_and_what_is_allowed() -> None:
    (line,) = option_problems(
        batching(**ADAPTIVE), {"pipeline_parallel_size": 2}, "app.engine_kwargs", leased=True
    )
    assert line == (
        "app.engine_kwargs.pipeline_parallel_size: 2 is not allowed with batching.sla.itl_ms:"
        " the time between two tokens is that of several steps there, and steps are what is"
        " timed; allowed: 1 (tensor_parallel_size shards a model, too), or no batching.sla.itl_ms"
    )


def test_no_replica_can_go_without_a_controller_so_that_is_not_proposed() -> None:
    (line,) = option_problems(batching(), {"data_parallel_size": 2}, "engine", leased=True)
    assert line == (
        "engine.data_parallel_size: 2 is not allowed with a controller: each rank has an engine of"
        " its own, and limits reach one engine of a replica; allowed: 1, and a replica for each"
        " rank"
    )
