"""``paper``: algorithms 1 and 2 line by line, the smaller of both, and the state it keeps."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from controller.config import BatchingConfig, PaperOptions
from controller.policies.base import Decision, Memory, Pool
from controller.policies.paper import MemoryBatching, SlaBatching, decide
from controller.records import BatchLimits, ReplicaReport, from_wire, to_wire
from tests.builders import batching, engine, limits, moments_of, pool, recent, report, seen

B_MAX = 256
FIXED = moments_of([(100, 100)] * 4)  # m = 200, s = 0
MIXED = moments_of([(50, 50), (150, 150)])  # m = 200, s^2 = 2500 + 2500
NOTHING = moments_of([])
HOLDING = {"decoding": 50, "kv_used_tokens": 8000}


def memory_batching(b_max: int = B_MAX, **options: Any) -> MemoryBatching:
    return MemoryBatching(PaperOptions(**options), 0.02, b_max)


def busy(decoding: int = 10, **overrides: Any) -> ReplicaReport:
    return report(decoding=decoding, running=decoding, prefilling=5, **overrides)


@pytest.mark.parametrize(
    ("options", "said", "lengths", "b"),
    [
        ({"memory": "exact"}, {}, NOTHING, B_MAX),  # b_0 holds while nothing finished
        ({"memory": "exact"}, {}, moments_of([(0, 0)]), B_MAX),  # nothing but empty requests
        ({"memory": "exact"}, {}, MIXED, 92),  # eq. 12
        # 120 run on: they drain to 100 (test_governor.py), no new one starts.
        ({"memory": "exact"}, {"decoding": 120}, FIXED, 100),
        ({"memory": "exact", "b_max": 64}, {}, FIXED, 64),
        ({"memory": "exact"}, {"engine": engine(kv_tokens=100)}, FIXED, 1),  # no memory for one
        # 1250 blocks over 200/16 + 0.5 = 13 blocks each: half an empty one per request.
        ({"memory": "exact", "units": "blocks"}, {}, FIXED, 96),
        # Eq. 14, with the deviation at the previous batch: L0 = theta sqrt(256 x 5000) = 2323.6.
        ({"l0": "buffer"}, {}, MIXED, 88),
        # The authors' share of memory over what a running request holds: 160 tokens each.
        ({"memory": "live"}, HOLDING, NOTHING, 118),
        ({"memory": "live", "units": "blocks"}, HOLDING, NOTHING, 118),
        ({"memory": "live"}, {"kv_used_tokens": 0}, NOTHING, B_MAX),  # no memory is in use
        # A flaw: the printed buffer leaves the batch at B_max whatever the memory.
        *(({"l0": "printed"}, {"engine": engine(kv_tokens=kv)}, MIXED, B_MAX)
          for kv in (100, 20_000, 10**6)),
    ],
)  # fmt: skip
def test_a_batch_by_one_report(options, said, lengths, b):
    assert memory_batching(**options).batch(busy(**said), lengths, 0) == b


@pytest.mark.parametrize(("n_d", "n_p"), [(0, 5), (10, 0), (0, 0)])
def test_line_4_holds_the_batch_unless_requests_both_prefill_and_decode(n_d: int, n_p: int) -> None:
    memory = memory_batching(memory="exact")
    assert memory.batch(busy(), FIXED, 0) == 100
    idle = report(decoding=n_d, prefilling=n_p, engine=engine(kv_tokens=1000))
    assert memory.batch(idle, FIXED, 1) == 100  # line 3: b_t <- b_{t-1}


def test_a_batch_for_which_there_is_no_memory_stays_one() -> None:
    memory, tiny = memory_batching(l0="buffer"), busy(engine=engine(kv_tokens=100))
    assert [memory.batch(tiny, MIXED, 10.0 * k) for k in range(3)] == [1, 1, 1]


def test_line_1_is_computed_anew_once_a_period_and_the_mean_at_once() -> None:
    memory = memory_batching(l0="buffer")
    longer = moments_of([(150, 150), (250, 250)])  # m = 400, the same deviation
    assert memory.batch(busy(), MIXED, 0) == 88
    assert memory.batch(busy(), longer, 9.9) == 44  # (20000 - 2323.6) / 400: old L0, new mean
    assert memory.batch(busy(), longer, 10.0) == 47  # L0 = theta sqrt(44 x 5000) = 963.3


def test_flaw_the_printed_buffer_grows_back_to_b_max_after_lengths_doubled() -> None:
    memory = memory_batching(l0="printed")
    longer = moments_of([(150, 150), (250, 250)])
    assert memory.batch(busy(), MIXED, 0) == B_MAX
    # Within the period: (theta sigma_S + mu_S) / m' = (2323.6 + 51200) / 400.
    assert memory.batch(busy(), longer, 1) == 133
    # After it: b + theta s sqrt(b) / m', for ever.
    later = [memory.batch(busy(), longer, 10 * k) for k in range(1, 5)]
    assert later == [137, 141, 145, 149]
    assert 149 * 400 > 20_000 * 2.9  # three times the memory there is


SLOW_S, RIGHT_S, FAST_S = 0.060, 0.050, 0.040


def sla_batching(**overrides: Any) -> SlaBatching:
    """D_SLA 50 +- 2 ms over 1..256, alpha 16, delta 4."""
    plain: dict[str, Any] = {
        "d_sla_s": 0.050,
        "epsilon_d_s": 0.002,
        "b_min": 1,
        "b_max": 256,
        "alpha": 16,
        "delta": 4,
    }
    return SlaBatching(**plain | overrides)


@pytest.mark.parametrize(
    ("before", "window", "b", "ends", "options"),
    [
        # Too slow: high comes down to the measured batch, low stays at B_min.
        ((), (SLOW_S, 100), 50, (1, 100), {}),
        ((), (SLOW_S, 5), 9, (1, 17), {}),  # ... but alpha above low
        (((FAST_S, 100),), (SLOW_S, 178), 137, (96, 178), {}),  # low is lowered by delta
        # Fast enough: low comes up to the measured batch, high stays at B_max.
        ((), (FAST_S, 100), 178, (100, 256), {}),
        ((), (FAST_S, 250), 248, (240, 256), {}),  # ... but alpha below high
        (((SLOW_S, 100),), (FAST_S, 50), 77, (50, 104), {}),  # high is raised by delta
        # Inside the band the interval closes around the measured batch, inside its bounds.
        ((), (0.051, 80), 80, (72, 88), {}),
        ((), (RIGHT_S, 80), 80, (78, 82), {"alpha": 5}),  # half of an odd alpha
        ((), (RIGHT_S, 254), 251, (246, 256), {}),
        ((), (RIGHT_S, 3), 6, (1, 11), {}),
        ((), (RIGHT_S, 81.5), 81, (73.5, 89.5), {}),
        # Line 15; line 6 puts high at 40 + 16, line 9 puts low at 50 - 100.
        ((), (SLOW_S, 5), 44, (40, 56), {"b_min": 40, "b_max": 44}),
        ((), (FAST_S, 30), 20, (-50, 50), {"b_min": 20, "b_max": 50, "alpha": 100}),
        ((), (SLOW_S, 256), 128, (1, 256), {}),  # while 256 run on, and drain
    ],
)
def test_a_window_moves_the_interval(before, window, b, ends, options):
    sla = sla_batching(**options)
    if not options:
        assert (sla.low, sla.high) == (1, 256)
    for one in before:
        sla.batch(*one)
    assert sla.batch(*window) == b
    assert (sla.low, sla.high) == ends


@pytest.mark.parametrize(("tau_s", "b"), [(0.625, 80), (0.375, 80), (0.626, 40), (0.374, 168)])
def test_the_edges_of_the_band_are_inside_it(tau_s: float, b: int) -> None:
    assert sla_batching(d_sla_s=0.5, epsilon_d_s=0.125).batch(tau_s, 80) == b


def test_flaw_a_full_batch_inside_the_sla_is_held_half_alpha_below_b_max() -> None:
    sla = sla_batching()
    b = 256
    for _ in range(50):
        b = sla.batch(FAST_S, b)
    assert b == 256 - 16 // 2


def test_flaw_the_interval_winds_up_while_the_load_does_not_reach_the_cap() -> None:
    sla = sla_batching()
    sla.batch(SLOW_S, 100)
    for _ in range(50):
        sla.batch(FAST_S, 2)
    assert sla.high == 256  # nothing was measured above a batch of 100


def test_flaw_after_a_step_change_it_moves_by_about_delta_a_window() -> None:
    sla = sla_batching()
    b = sla.batch(RIGHT_S, 50)
    caps = [b := sla.batch(FAST_S, b) for _ in range(6)]
    assert caps == [52, 56, 60, 64, 68, 72]


OF_100 = pool(lengths=moments_of([(100, 100)]))  # 20,000 tokens hold 100 requests


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
    assert policy().fleet(slow, OF_100, 0) == Decision(100, "memory")


def test_before_anything_is_measured_the_bound_holds() -> None:
    assert policy(sla={"itl_ms": 50}).fleet(report(), pool(), 0) == Decision(256, "bound")


def test_the_smaller_of_both_batches_is_taken_and_named() -> None:
    paper = policy(sla={"itl_ms": 50})
    too_slow = report(seq=1, recent=recent(0.06, 120))
    assert paper.fleet(too_slow, OF_100, 0) == Decision(60, "sla")
    fast = report(seq=2, recent=recent(0.04, 90))
    assert paper.fleet(fast, OF_100, 0.5) == Decision(100, "memory")  # b_SLA = 107


def test_equal_batches_are_memorys() -> None:
    # High 199, low 1: b_SLA is 100 too.
    at_both = report(recent=recent(0.06, 199))
    assert policy(sla={"itl_ms": 50}).fleet(at_both, OF_100, 0) == Decision(100, "memory")


def test_a_window_without_decodes_leaves_the_last_answer_standing() -> None:
    paper = policy(sla={"itl_ms": 50})
    paper.fleet(report(seq=1, recent=recent(0.06, 120)), OF_100, 0)
    assert paper.fleet(report(seq=2), OF_100, 0.5) == Decision(60, "sla")


@pytest.mark.parametrize(
    ("bounds", "cap"),
    [({"min": 120}, 120), ({"max": 80}, 80), ({"min": 100}, 100), ({"max": 100}, 100)],
)
def test_a_batch_on_or_past_a_bound_is_the_bounds(bounds: dict[str, int], cap: int) -> None:
    assert policy(bounds=bounds).fleet(report(), OF_100, 0) == Decision(cap, "bound")


@pytest.mark.parametrize(
    ("said", "known", "decision"),
    [
        # low = 64, high = the 1000 tokens measured; the cap is memory's.
        (
            {"recent": recent(0.06, 50, tokens=1000)},
            OF_100,
            Decision(100, "memory", 532),
        ),
        ({}, OF_100, Decision(100, "memory", 2048)),  # it starts with the engine's own
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
    assert fused.fleet(right, OF_100, 0).token_budget == 600  # 568 to 632
    fast = report(seq=2, recent=recent(0.04, 50, tokens=600))
    assert fused.fleet(fast, OF_100, 0.5).token_budget == 608  # 568 to 648


def test_pd_fusion_without_an_sla_leaves_the_budget_alone() -> None:
    assert policy({"size_chunk": True}).fleet(report(), OF_100, 0) == Decision(100, "memory")


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
