"""What ``--policy`` may say, and what a wrong one is told."""

import pytest

from controller.config import Sla
from controller.errors import ConfigError
from simulator.replay.measure import Spread, Summary
from simulator.replay.sweep import best, sweep_plans
from simulator.virtual.plan import EngineOptions, parse_policy

ENGINE = EngineOptions(max_num_seqs=256, max_num_batched_tokens=2048)
SLA = Sla(itl_ms=50)


def test_a_bare_name_takes_the_engine_and_the_agreement_of_all() -> None:
    plan = parse_policy("paper", SLA, ENGINE)
    assert (plan.spec, plan.kind, plan.engine) == ("paper", "scheduler", ENGINE)
    assert (plan.batching.policy, plan.batching.sla) == ("paper", SLA)


def test_engine_options_go_to_the_engine() -> None:
    engine = parse_policy(
        "static:max_num_seqs=512,max_num_batched_tokens=512,watermark=0.05", SLA, ENGINE
    ).engine
    assert engine == EngineOptions(max_num_seqs=512, max_num_batched_tokens=512, watermark=0.05)


def test_batching_keys_go_to_the_block_with_the_policys_own_in_short_form() -> None:
    spec = "paper:memory=live,paper.delta=8,sla.itl_ms=30,max_running.max=64,exchange_hz=4"
    plan = parse_policy(spec, SLA, ENGINE)
    assert (plan.batching.paper.memory, plan.batching.paper.delta) == ("live", 8)
    assert (plan.batching.max_running.max, plan.batching.exchange_hz) == (64, 4)
    assert (plan.batching.sla.itl_s, plan.batching.sla.percentile) == (0.03, 99)


def test_the_benchs_own_policies_run_on_a_static_engine() -> None:
    kinds = {s: parse_policy(s, SLA, ENGINE).kind for s in ("reserved", "request-level")}
    assert kinds == {"reserved": "reserved", "request-level": "request-level"}
    sequential = parse_policy("sequential", SLA, ENGINE)
    assert (sequential.kind, sequential.engine.max_num_seqs) == ("scheduler", 1)


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


def test_a_sweep_leaves_out_what_vllm_refuses() -> None:
    plans = list(sweep_plans((64, 256), (128, 512), SLA, ENGINE))
    found = [(p.engine.max_num_seqs, p.engine.max_num_batched_tokens) for p in plans]
    assert found == [(64, 128), (64, 512), (256, 512)]
    assert all(p.swept for p in plans)


def summary(policy: str, tokens: float, goodput: float | None, capacity: float | None) -> Summary:
    """A summary of which only what a sweep judges by is of interest."""
    none = Spread(None, None, None, None, None)
    times = (none, none, none, none, none)
    return Summary(
        policy, 1, 1, 1.0, tokens, 0, 1.0, 0.1, *times, *[None] * 6, goodput, 1, None, capacity
    )


def test_the_best_is_by_capacity_else_goodput_else_tokens() -> None:
    assert best([summary("a", 9, 1, 2), summary("b", 1, 9, 3)]).policy == "b"
    assert best([summary("a", 9, 1, None), summary("b", 1, 2, None)]).policy == "b"
    assert best([summary("a", 9, None, None), summary("b", 1, None, None)]).policy == "a"
    assert best([summary("a", 8, 1, None), summary("b", 9, 1, None)]).policy == "b"
