"""``paper``: b = min(b_mem, b_SLA), what set it, PD fusion, and the state it keeps."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from controller.config import BatchingConfig
from controller.errors import ConfigError
from controller.policies.base import Decision, Memory, Pool
from controller.policies.paper import decide
from controller.records import BatchLimits, ReplicaReport, from_wire, to_wire
from tests.builders import batching, engine, limits, moments_of, pool, recent, report, seen

FIXED = pool(lengths=moments_of([(100, 100)]))  # 20,000 tokens hold 100 requests


class Carried:
    """The policy for one replica, with what it remembers."""

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config
        self.memory: Memory = {}

    def fleet(self, said: ReplicaReport, known: Pool, now_s: float) -> Decision:
        facts = replace(seen(self._config, known, now_s), report=said)
        decision, self.memory = decide(self.memory, facts)
        return decision


def policy(
    paper: dict[str, Any] | None = None, bounds: dict[str, Any] | None = None, **block: Any
) -> Carried:
    return Carried(
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
    ("said", "known", "decision"),
    [
        # low = 64, high = the 1000 tokens measured; the cap is memory's.
        ({"recent": recent(0.06, 50, tokens=1000)}, FIXED, Decision(100, "memory", 532)),
        ({}, FIXED, Decision(100, "memory", 2048)),  # it starts with the engine's own
        (  # the tokens of running decodes are the governor's: (64 + 820) / 2
            {
                "engine": engine(tokens_per_decode=4),
                "decoding": 200,
                "recent": recent(0.06, 200, tokens=820),
            },
            pool(),
            Decision(256, "bound", 442),
        ),
        (  # its floor: line 9 alone would put low at 5, and the budget at 52
            {
                "engine": engine(max_num_batched_tokens=100),
                "decoding": 0,
                "recent": recent(0.04, 5, tokens=5),
            },
            pool(),
            Decision(256, "bound", 64),
        ),
    ],
)
def test_pd_fusion_sizes_the_token_budget_and_leaves_the_cap_to_memory(
    said: dict[str, Any], known: Pool, decision: Decision
) -> None:
    fused = policy({"size_chunk": True}, sla={"itl_ms": 50})
    assert fused.fleet(report(**said), known, 0) == decision


def test_pd_fusion_takes_alpha_and_delta_in_tokens() -> None:
    fused = policy({"size_chunk": True}, sla={"itl_ms": 50})
    right = report(seq=1, recent=recent(0.05, 50, tokens=600))
    assert fused.fleet(right, FIXED, 0).token_budget == 600  # 568 to 632
    fast = report(seq=2, recent=recent(0.04, 50, tokens=600))
    assert fused.fleet(fast, FIXED, 0.5).token_budget == 608  # 568 to 648


def test_pd_fusion_without_an_sla_leaves_the_budget_alone() -> None:
    assert policy({"size_chunk": True}).fleet(report(), FIXED, 0) == Decision(100, "memory")


def by_json(memory: Memory) -> Memory:
    return json.loads(json.dumps(memory))


def by_limits(memory: Memory) -> Memory:
    """With the limits to the engine, and with the next report to another controller."""
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(limits(memory=memory))))
    kept = from_wire(BatchLimits, wire).memory
    wire = msgspec.msgpack.decode(msgspec.msgpack.encode(to_wire(report(memory=kept))))
    return from_wire(ReplicaReport, wire).memory


@pytest.mark.parametrize("way", [by_json, by_limits])
@pytest.mark.parametrize("sla", [{}, {"itl_ms": 50}])
@pytest.mark.parametrize("paper", [{}, {"memory": "linear", "l0": "buffer"}, {"size_chunk": True}])
def test_what_it_remembers_goes_on_in_another_process(paper, sla, way):
    here, there = policy(paper, sla=sla), policy(paper, sla=sla)
    for seq in range(1, 60):
        itl_s, batch = 0.03 + 0.0011 * (7 * seq % 37), 20 + 11 * seq % 97
        lengths = moments_of([(80 + seq, 120), (40, 20 + 3 * seq)])
        said = report(seq=seq, recent=recent(itl_s, batch, tokens=9.0 * batch))
        there.memory = way(there.memory)
        found = [one.fleet(said, pool(lengths=lengths), seq / 2) for one in (here, there)]
        assert found[0] == found[1]
    assert len(json.dumps(here.memory)) < 2000


def test_what_it_remembers_does_not_outlast_an_hour_of_another_clock() -> None:
    paper = policy({"memory": "linear", "l0": "buffer"})
    mixed = moments_of([(50, 50), (150, 150)])
    assert paper.fleet(report(), pool(lengths=mixed), 7200.0).max_running == 88
    longer = moments_of([(150, 150), (250, 250)])
    # Algorithm 1's L0 is computed anew: by this controller's clock its time is hours away.
    assert paper.fleet(report(seq=2), pool(lengths=longer), 5.0).max_running == 46
