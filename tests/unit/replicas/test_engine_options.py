"""Engine options that the control cannot serve are refused, and only those."""

from typing import Any

import pytest

from replicas.engine.engine_options import option_problems
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
        # Whole prompts are served where nobody cuts them; the paper's chunk does.
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


def test_the_line_names_key_value_reason_and_what_is_allowed() -> None:
    (line,) = option_problems(
        batching(**ADAPTIVE),
        {"pipeline_parallel_size": 2},
        "app.engine_kwargs",
        has_controller=True,
    )
    assert line == (
        "app.engine_kwargs.pipeline_parallel_size: 2 is not allowed with batching.sla.itl_ms:"
        " the time between two tokens is that of several steps there, and steps are what is"
        " timed; allowed: 1 (tensor_parallel_size shards a model, too), or no batching.sla.itl_ms"
    )


def test_no_replica_can_go_without_a_controller_so_that_is_not_proposed() -> None:
    (line,) = option_problems(batching(), {"data_parallel_size": 2}, "engine", has_controller=True)
    assert line == (
        "engine.data_parallel_size: 2 is not allowed with a controller: each rank has an engine of"
        " its own, and limits reach one engine of a replica; allowed: 1, and a replica for each"
        " rank"
    )
