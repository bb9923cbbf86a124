"""What ``--policy`` may say, and ``max_model_len`` of a replay."""

from collections.abc import Sequence

import pytest

from controller.config import Sla
from controller.errors import ConfigError
from simulator.virtual.model_len import max_model_len
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.workloads.requests import Request

ENGINE = EngineOptions(max_num_seqs=256, max_num_batched_tokens=2048)
SLA = Sla(itl_ms=50)


def test_batching_keys_go_to_the_block_with_the_policys_own_in_short_form() -> None:
    spec = "paper:memory=live,paper.delta=8,sla.itl_ms=30,max_running.max=64,lease_s=4"
    plan = parse_policy(spec, SLA, ENGINE)
    assert (plan.batching.paper.memory, plan.batching.paper.delta) == ("live", 8)
    assert (plan.batching.max_running.max, plan.batching.lease_s) == (64, 4)
    assert (plan.batching.sla.itl_s, plan.batching.sla.percentile) == (0.03, 99)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("papr", "policy: unknown key 'papr'; did you mean 'paper'?"),
        (
            "paper:memry=live",
            "policy paper:memry=live: unknown key 'memry'; did you mean 'memory'?",
        ),
        ("paper:memory=dead", "policy paper:memory=dead.paper.memory: 'dead' is not allowed"),
        ("paper:memory", "'memory' is not allowed: key=value"),
        ("static:max_num_seqs=0", "max_num_seqs: 0 is not allowed"),
        ("static:max_num_seqs=many", "max_num_seqs: 'many' is not allowed"),
        ("static:watermark=1", "watermark: 1 is not allowed"),
        ("static:max_num_batched_tokens=128", "at least max_num_seqs=256, or vLLM does not start"),
        ("static:policy=paper", "unknown key 'policy'"),
        ("static:watermark=[1", "watermark: line 1, column 3: not valid YAML: expected ',' or ']'"),
        ("static:watermark=*a", "watermark: line 1, column 1: not valid YAML: found undefined"),
        ("static:watermark=0x_", "watermark: line 1, column 1: not valid YAML: '0x_' is not"),
        (f"static:watermark={'[' * 2000}", "watermark: nested too deeply to be read"),
    ],
)
def test_a_wrong_spec_is_told_what_is_allowed(spec: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_policy(spec, SLA, ENGINE)
    assert says in str(caught.value)


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
