"""Which tokens were late, by both meanings, and what a capacity makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from controller.config import Sla
from simulator.replay.lateness import LateCounter, late_tokens
from simulator.replay.measure import late_share, meets
from simulator.replay.verdict import Target, Watch, fault_of
from simulator.virtual.trace import Outcome, Trace, make_gaps
from simulator.workloads.requests import Request

# One has its first token at once and is then served in bursts; one has it after 3 s.
FIRST, SECOND = Request(0.0, 10, 4), Request(0.0, 10, 3)
GAPS = [(0.01, 0.11, 0), (0.3, 0.41, 0), (0.05, 3.05, 1), (0.06, 3.11, 1), (0.9, 1.31, 0)]
TRACE = Trace(
    outcomes=(
        Outcome(FIRST, False, 4, 0.0, 0.1, 1.31),
        Outcome(SECOND, False, 3, 0.0, 3.0, 3.11),
    ),
    steps=(),
    gaps=make_gaps(sorted(GAPS, key=lambda gap: gap[1])),
    stays=(),
    kv_tokens=100,
    end_s=4.0,
)


def sla(delivery: str, ttft_ms: float | None = None, **more: float) -> Sla:
    return Sla(itl_ms=50, ttft_ms=ttft_ms, delivery=delivery, **more)


@pytest.mark.parametrize(
    ("agreed", "late"),
    [
        (sla("gaps"), [False, True, True, False, True]),
        # Due 0.15, 0.2, 0.25 and 3.05, 3.1.
        (sla("paced"), [False, True, True, False, True]),
        # Due 1.05, 1.1, 1.15 and as before.
        (sla("paced", 1000), [False, False, True, False, True]),
        (sla("paced", 1200), [False, False, False, False, True]),
    ],
)
def test_a_token_is_late_by_the_gap_or_by_when_it_was_due(agreed: Sla, late: list[bool]) -> None:
    assert late_tokens(TRACE, agreed).tolist() == late
    counter = LateCounter(agreed, [0.0, 0.0])
    gaps = TRACE.gaps
    rows = zip(gaps.length_s.tolist(), gaps.end_s.tolist(), gaps.request.tolist(), strict=True)
    assert [counter.late(*row) for row in rows] == late


def test_tokens_that_come_together_are_due_one_after_the_other() -> None:
    # Two at 0.18 s, the first of them due at 0.15; one at 0.25, due then.
    gaps = [(0.08, 0.18, 0, 2), (0.06, 0.24, 0), (0.01, 0.25, 1), (0.2, 0.44, 0)]
    trace = replace(TRACE, gaps=make_gaps(gaps))
    late = [True, False, False, True]
    assert late_tokens(trace, sla("paced")).tolist() == late
    counter = LateCounter(sla("paced"), [0.0, 0.0])
    assert [counter.late(*gap) for gap in gaps] == late


def test_what_is_late_decides_attainment_and_share() -> None:
    agreed = sla("paced", 1200, percentile=50)
    assert meets(TRACE, agreed) == [True, False]  # the second one's first token is late
    assert meets(TRACE, sla("gaps", percentile=50)) == [False, True]
    assert late_share(TRACE, agreed) == 0.2
    assert late_share(TRACE, agreed, 3.0) == 0.5


def test_a_capacity_under_paced_delivery_is_by_the_share_of_late_tokens() -> None:
    steady = Request(0.0, 1, 101)
    gaps = make_gaps([(0.05, 1 + 0.05 * k, 0) for k in range(1, 101)])
    trace = replace(
        TRACE, outcomes=(Outcome(steady, False, 101, 0.0, 1.0, 6.0),), gaps=gaps, end_s=2.0
    )
    assert fault_of(trace, Target(sla("paced"))) is None
    behind = replace(trace, gaps=replace(gaps, end_s=gaps.end_s + np.where(gaps.end_s > 5.9, 1, 0)))
    fault = fault_of(behind, Target(sla("paced")))
    assert fault is not None
    assert fault.criterion == "paced delivery"
    assert "of the tokens after they were due, allowed 1.00%" in fault.what
    lenient = Target(sla("paced", percentile=90))
    assert fault_of(behind, lenient) is None


def test_a_run_whose_tokens_are_hopelessly_late_is_ended() -> None:
    requests = [Request(float(k), 1, 50) for k in range(100)]
    watch = Watch(requests, Target(sla("paced", 1000)))
    gaps = [(0.1, 30 + 0.1 * k, 30) for k in range(1, 45)]
    assert not watch(33.0, (), gaps[:15])  # its pace begins at 31 s, half of these were early
    assert watch(40.0, (), [*gaps, *((0.1, 35 + 0.1 * k, 31) for k in range(1, 45))])
    assert watch.fault is not None
    assert watch.fault.criterion == "paced delivery"
