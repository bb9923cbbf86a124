"""``max_model_len`` of a replay: a model's context, as far as vLLM starts with it."""

from collections.abc import Sequence

import pytest

from controller.errors import ConfigError
from simulator.virtual.model_len import max_model_len
from simulator.virtual.plan import EngineOptions
from simulator.workloads.requests import Request


def found(requests: Sequence[Request], kv_tokens: int, **engine: int) -> int:
    """On an engine with these options."""
    options = {"max_num_seqs": 64, "max_num_batched_tokens": 2048} | engine
    return max_model_len(requests, EngineOptions.model_validate(options), kv_tokens)


@pytest.mark.parametrize(
    ("longest", "kv_tokens", "context"),
    [
        (428, 1_000_000, 32_768),
        (32_768, 1_000_000, 32_768),
        (32_769, 1_000_000, 65_536),
        (428, 6_000, 6_000),  # more than vLLM starts with otherwise; and it gives no length away
        (40_000, 36_000, 36_000),
    ],
)
def test_the_context_says_nothing_of_the_lengths(
    longest: int, kv_tokens: int, context: int
) -> None:
    requests = [Request(0, 100, 10), Request(0, 100, longest - 100)]
    assert found(requests, kv_tokens) == context


def test_a_prompt_that_is_not_chunked_has_to_fit_a_step() -> None:
    requests = [Request(0, 300, 20), Request(0, 3000, 20)]
    assert found(requests, 100_000, enable_chunked_prefill=False) == 2048
    assert found(requests, 1_000, enable_chunked_prefill=False) == 1_000


@pytest.mark.parametrize(
    ("kv_tokens", "engine", "says"),
    [
        (64, {}, "kv-tokens: 64 is not allowed: the shortest request of the workload takes 110"),
        (
            6_000,
            {"max_num_batched_tokens": 100, "enable_chunked_prefill": False},
            "max_num_batched_tokens without chunked prefill: 100 is not allowed",
        ),
        (
            6_000,
            {"long_prefill_token_threshold": 6_001},
            "long_prefill_token_threshold: 6001 is not allowed: up to max_model_len, here 6000",
        ),
    ],
)
def test_an_engine_that_would_not_start_is_refused(
    kv_tokens: int, engine: dict[str, int], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        found([Request(0, 100, 10), Request(0, 100, 300)], kv_tokens, **engine)
