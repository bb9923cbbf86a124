"""From a trace to the numbers of a comparison, and the fluid limit, by arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.fluid import fluid_limit_per_s
from simulator.replay.measure import (
    j_of,
    late_share,
    meets,
    summarise,
)
from simulator.virtual.trace import Outcome, Step, Trace, make_gaps
from simulator.workloads.requests import LengthStats, Request

STEP = Step(
    end_s=1.0,
    duration_s=1.0,
    decodes=2,
    prefill_tokens=0,
    running=2,
    kv_used_tokens=50,
    cap=8,
)
# One that waits 1 s, has its first token at 2 s and then one after 0.1 s and one after 0.3 s; one
# that is refused; one that is not finished at the end.
TRACE = Trace(
    outcomes=(
        Outcome(Request(0.5, 10, 3), False, 3, 1.5, 2.5, 2.9, 1),
        Outcome(Request(0.5, 999, 999), refused=True),
        Outcome(Request(1.0, 10, 5), False, 1, 2.0, 3.0, None),
    ),
    steps=(
        STEP,
        replace(STEP, end_s=3.5, duration_s=2.0, running=1, kv_used_tokens=80, predicted_s=1.5),
        replace(STEP, end_s=4.5, duration_s=1.0, predicted_s=1.1),
    ),
    gaps=make_gaps([(0.1, 2.6, 0), (0.3, 2.9, 0)]),
    kv_tokens=100,
    end_s=4.5,
)


def test_counts_rates_and_memory() -> None:
    found = summarise("static", TRACE, Sla())
    assert (found.policy, found.requests, found.finished) == ("static", 3, 1)
    assert (found.preemptions, found.steps, found.kv_peak_frac) == (1, 3, 0.8)
    assert found.duration_s == 4.0
    assert found.output_tokens_per_s == 4 / 4
    assert found.mean_running == (2 * 1 + 1 * 2 + 2 * 1) / 4


def test_latencies_are_in_milliseconds() -> None:
    found = summarise("static", TRACE, Sla())
    assert found.itl_ms.mean == pytest.approx(200)
    assert found.tpot_ms.p50 == pytest.approx(200)
    assert found.ttft_ms.mean == pytest.approx(2000)
    assert found.scheduling_delay_ms.mean == pytest.approx(1000)
    assert found.e2e_ms.mean == found.e2e_ms.p99 == pytest.approx(2400)


@pytest.mark.parametrize(
    ("sla", "met"),
    [
        (Sla(itl_ms=300), True),
        (Sla(itl_ms=299), False),
        (Sla(itl_ms=299, percentile=50), True),
        (Sla(itl_ms=99, percentile=50), False),
        (Sla(ttft_ms=2000), True),
        (Sla(ttft_ms=1999), False),
        (Sla(itl_ms=300, ttft_ms=1999), False),
    ],
)
def test_a_request_meets_the_sla_by_its_own_gaps_and_its_first_token(sla: Sla, met: bool) -> None:
    assert meets(TRACE, sla) == [met, False, False]
    found = summarise("static", TRACE, sla)
    assert found.sla_attainment == pytest.approx(met / 3)
    assert found.goodput_per_s == pytest.approx(met / 4)


@pytest.mark.parametrize(
    ("from_s", "until_s", "share"),
    [
        (0.0, np.inf, 2 / 4),
        (0.0, 30.0, 1 / 2),
        (0.0, 30.1, 1 / 3),  # a gap that ends at 30.0 belongs to what begins there
        (30.0, 90.0, 0.0),
        (30.0, np.inf, 1 / 2),
        (91.0, np.inf, None),
    ],
)
def test_late_gaps_are_a_share_of_those_that_end_in_the_window(
    from_s: float, until_s: float, share: float | None
) -> None:
    # 50 ms to the last bit is within 50 ms.
    gaps = [(0.06, 10.0, 0), (0.05 * (1 + 1e-12), 20.0, 0), (0.04, 30.0, 1), (0.07, 90.0, 0)]
    trace = replace(TRACE, gaps=make_gaps(gaps))
    assert late_share(trace, Sla(itl_ms=50), from_s, until_s) == share
    assert late_share(trace, Sla(ttft_ms=50), from_s, until_s) is None


def test_a_gap_of_more_than_twenty_times_the_agreed_is_a_stall() -> None:
    gaps = [(1.0, 10.0, 0), (1.0001, 12.0, 0), (90.0, 102.0, 2)]
    trace = replace(TRACE, gaps=make_gaps(gaps))
    found = summarise("static", trace, Sla(itl_ms=50))
    assert (found.stalls, found.longest_gap_ms) == (2, pytest.approx(90_000))
    without = summarise("static", replace(trace, gaps=make_gaps([])), Sla())
    assert (without.stalls, without.longest_gap_ms) == (None, None)


def test_j_is_late_over_allowed_times_the_mean_wait_of_all_who_were_offered() -> None:
    # Waits of 2 s each; the refused one does not count.
    assert j_of(TRACE, Sla(itl_ms=200, percentile=75)) == pytest.approx(2 * 0.5 / 0.25)
    assert j_of(TRACE, Sla(itl_ms=300)) == pytest.approx(2.0)
    assert j_of(TRACE, Sla()) is None
    assert j_of(replace(TRACE, outcomes=TRACE.outcomes[1:2]), Sla(itl_ms=50)) is None
    # One that never had a token has waited until the end.
    waiting = Outcome(Request(0.5, 10, 3))
    more = replace(TRACE, outcomes=(*TRACE.outcomes, waiting))
    assert j_of(more, Sla(itl_ms=300)) == pytest.approx((2 + 2 + 4) / 3)


@pytest.mark.parametrize(
    ("tokens", "late", "percentile", "met"),
    [
        (101, 1, 99, True),  # 1 of 100 gaps
        (100, 1, 99, False),  # 1 of 99
        (101, 2, 99, False),
        (11, 1, 90, True),  # 1 - 0.9 is a little under a tenth to a computer
        (10, 1, 90, False),
        (1, 0, 99, True),
    ],
)
def test_of_a_requests_gaps_so_many_may_be_late(
    tokens: int, late: int, percentile: float, met: bool
) -> None:
    one = Outcome(Request(0.0, 10, tokens), False, tokens, 0.1, 0.2, 90.0, 0)
    gaps = [(0.06 if k < late else 0.04, 1.0 + k, 0) for k in range(tokens - 1)]
    trace = replace(TRACE, outcomes=(one,), gaps=make_gaps(gaps))
    assert meets(trace, Sla(itl_ms=50, percentile=percentile)) == [met]


LENGTHS = LengthStats(mean_input=257, mean_output=447, mean_held=500, mean_context=128)


def profile(kv_tokens: int = 10**9, **cost: float) -> StepProfile:
    """An accelerator with this linear cost."""
    line = LinearCost(**{"fixed_s": 0.0269, "per_decode_s": 0.0002308} | cost)
    return StepProfile("p", "", kv_tokens, 256, 2048, line)


def test_it_is_the_decode_and_prefill_work_of_a_request_against_the_sla() -> None:
    found = fluid_limit_per_s(load_profile("paper-fig3"), LENGTHS, 0.05)
    work_s = 0.00012 * 257 + 0.0002308 * 446
    assert found == pytest.approx((0.05 - 0.0269) / (0.05 * work_s), rel=1e-6)


def test_kv_tokens_and_prefill_context_are_work_too() -> None:
    found = fluid_limit_per_s(
        profile(per_kv_s=1e-6, per_prefill_s=1e-4, per_context_s=1e-7), LENGTHS, 0.05
    )
    work_s = (1e-4 + 1e-7 * 128) * 257 + (0.0002308 + 1e-6 * 500) * 446
    assert found == pytest.approx((0.05 - 0.0269) / (0.05 * work_s), rel=1e-6)


def test_short_memory_limits_the_batch() -> None:
    # 10 requests of 500 tokens: a step of 29.2 ms, and 10 tokens of 447 in it.
    found = fluid_limit_per_s(profile(kv_tokens=5000), LENGTHS, 0.05)
    assert found == pytest.approx(10 / 447 / (0.0269 + 10 * 0.0002308), rel=0.01)


def test_an_sla_below_the_shortest_step_leaves_nothing() -> None:
    assert fluid_limit_per_s(profile(), LENGTHS, 0.02) == 0
