"""``paper``: b = min(b_mem, b_SLA), what set it, PD fusion, and the state it keeps."""

from typing import Any

import pytest

from controller.errors import ConfigError
from controller.policies.base import EMPTY_BATCH, Decision, Pool
from controller.policies.paper import PaperPolicy
from controller.policies.registry import make_step_half
from tests.builders import batching, engine, limits, moments_of, pool, recent, report, state

FIXED = pool(lengths=moments_of([(100, 100)]))  # 20,000 tokens hold 100 requests


def policy(
    paper: dict[str, Any] | None = None, bounds: dict[str, Any] | None = None, **block: Any
) -> PaperPolicy:
    return PaperPolicy(
        batching(paper={"memory": "exact", **(paper or {})}, max_running=bounds or {}, **block)
    )


def test_without_an_sla_memory_alone_decides() -> None:
    slow = report(recent=recent(9.0, 200))
    assert policy().fleet(slow, FIXED, 0) == Decision(100, "memory")


def test_before_anything_is_measured_the_bound_holds() -> None:
    assert policy(sla={"itl_ms": 50}).fleet(report(), pool(), 0) == Decision(256, "bound")


def test_the_smaller_of_both_batches_is_taken_and_named() -> None:
    paper = policy(sla={"itl_ms": 50})
    too_slow = report(seq=1, recent=recent(0.06, 120))
    assert paper.fleet(too_slow, FIXED, 0) == Decision(60, "sla")
    fast = report(seq=2, recent=recent(0.04, 90))
    assert paper.fleet(fast, FIXED, 0.5) == Decision(100, "memory")  # b_SLA = 107


def test_equal_batches_are_memorys() -> None:
    # High 199, low 1: b_SLA is 100 too.
    at_both = report(recent=recent(0.06, 199))
    assert policy(sla={"itl_ms": 50}).fleet(at_both, FIXED, 0) == Decision(100, "memory")


def test_a_window_without_decodes_leaves_the_last_answer_standing() -> None:
    paper = policy(sla={"itl_ms": 50})
    paper.fleet(report(seq=1, recent=recent(0.06, 120)), FIXED, 0)
    assert paper.fleet(report(seq=2), FIXED, 0.5) == Decision(60, "sla")


@pytest.mark.parametrize(
    ("bounds", "cap"),
    [({"min": 120}, 120), ({"max": 80}, 80), ({"min": 100}, 100), ({"max": 100}, 100)],
)
def test_a_batch_on_or_past_a_bound_is_the_bounds(bounds: dict[str, int], cap: int) -> None:
    assert policy(bounds=bounds).fleet(report(), FIXED, 0) == Decision(cap, "bound")


def test_b_min_above_the_engines_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_running\.min: 300 is above max_num_seqs=256"):
        policy(bounds={"min": 300}).fleet(report(), FIXED, 0)


@pytest.mark.parametrize(
    ("paper", "said", "known", "decision"),
    [
        # low = chunk_min 64, high = the 1000 tokens measured; the cap is memory's.
        ({}, {"recent": recent(0.06, 50, tokens=1000)}, FIXED, Decision(100, "memory", 532)),
        ({}, {}, FIXED, Decision(100, "memory", 2048)),  # it starts with the engine's own
        (  # the tokens of running decodes are the governor's: (64 + 820) / 2
            {},
            {
                "engine": engine(tokens_per_decode=4),
                "decoding": 200,
                "recent": recent(0.06, 200, tokens=820),
            },
            pool(),
            Decision(256, "bound", 442),
        ),
        (  # its floor: line 9 alone would put low at 200 - 1000 and the budget below 0
            {"chunk_alpha": 1000, "chunk_min": 64},
            {
                "engine": engine(max_num_batched_tokens=200),
                "decoding": 0,
                "recent": recent(0.04, 5, tokens=5),
            },
            pool(),
            Decision(256, "bound", 64),
        ),
    ],
)
def test_pd_fusion_sizes_the_token_budget_and_leaves_the_cap_to_memory(
    paper: dict[str, Any], said: dict[str, Any], known: Pool, decision: Decision
) -> None:
    fused = policy({"size_chunk": True, **paper}, sla={"itl_ms": 50})
    assert fused.fleet(report(**said), known, 0) == decision


def test_pd_fusion_takes_alpha_and_delta_in_tokens() -> None:
    fused = policy({"size_chunk": True, "chunk_alpha": 200, "chunk_delta": 8}, sla={"itl_ms": 50})
    right = report(seq=1, recent=recent(0.05, 50, tokens=600))
    assert fused.fleet(right, FIXED, 0).token_budget == 600  # 500 to 700
    fast = report(seq=2, recent=recent(0.04, 50, tokens=600))
    assert fused.fleet(fast, FIXED, 0.5).token_budget == 604  # 500 to 708


def test_pd_fusion_without_an_sla_leaves_the_budget_alone() -> None:
    assert policy({"size_chunk": True}).fleet(report(), FIXED, 0) == Decision(100, "memory")


def test_each_replica_has_its_own_search() -> None:
    paper = policy(sla={"itl_ms": 50})
    slow = report(replica_id="a", recent=recent(0.06, 120))
    assert paper.fleet(slow, FIXED, 0) == Decision(60, "sla")
    other = report(replica_id="b", recent=recent(0.06, 80))
    assert paper.fleet(other, FIXED, 0) == Decision(40, "sla")


@pytest.mark.parametrize("new_life", [{"seq": 1}, {"seq": 9, "engine": engine(block_tokens=32)}])
def test_an_engine_that_started_anew_is_searched_anew(new_life: dict[str, Any]) -> None:
    paper = policy(sla={"itl_ms": 50})
    paper.fleet(report(seq=8, recent=recent(0.06, 120)), FIXED, 0)
    assert paper.fleet(report(**new_life), FIXED, 1) == Decision(100, "memory")


def test_a_forgotten_replica_is_searched_anew() -> None:
    paper = policy(sla={"itl_ms": 50})
    paper.fleet(report(seq=8, recent=recent(0.06, 120)), FIXED, 0)
    paper.forget("r1")
    paper.forget("never heard of")
    assert paper.fleet(report(seq=9), FIXED, 1) == Decision(100, "memory")


@pytest.mark.parametrize(("pushed", "budget"), [(300, 300), (None, 2048)])
def test_the_step_half_follows_what_was_pushed(pushed: int | None, budget: int) -> None:
    follow = make_step_half(batching(policy="paper"), engine())
    told = limits(max_running=7, token_budget=pushed)
    step = follow.limits(state(), lambda: EMPTY_BATCH, told)
    assert (step.max_running, step.token_budget) == (7, budget)
