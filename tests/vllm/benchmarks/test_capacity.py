"""The capacity search on plants whose capacity is known."""

from dataclasses import replace

import pytest

from controller.config import Sla
from replicas.profiles.profile import LinearCost, StepProfile
from simulator.replay.capacity import (
    Capacity,
    Course,
    find_capacity,
    make_course,
)
from simulator.replay.engine import Ground
from simulator.replay.verdict import Target, Watch, fault_of
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.virtual.trace import Outcome, Trace, make_gaps
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request

# Decode alone costs: a step of B takes 40 + B ms, so B is 10 at 50 ms. With metronome arrivals of
# 11 tokens each every step is alike: q = (D - c0) / (D c1 (E[out] - 1)) = 20/s.
PLANT = StepProfile("plant", "", 4_000, 64, 512, LinearCost(0.040, 0.001))
ENGINE = EngineOptions(max_num_seqs=64, max_num_batched_tokens=512)
TARGET = Target(Sla(itl_ms=50))


def course(target: Target = TARGET, profile: StepProfile = PLANT) -> Course:
    """A short one: a metronome is steady at once."""
    return make_course(
        load_workload("fixed:1,11"), Ground(profile), target, least=100, gap_cv=0, least_run_s=15
    )


def capacity(spec: str, target: Target = TARGET, profile: StepProfile = PLANT) -> Capacity:
    """What a policy carries on a plant."""
    plan = parse_policy(spec, target.sla, ENGINE)
    return find_capacity(course(target, profile), plan, Ground(profile), target)


@pytest.fixture
def roughly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are found to a third, which takes half of the replays."""
    monkeypatch.setattr("simulator.replay.capacity.PRECISION", 1 / 3)


def test_it_finds_the_rate_at_which_every_step_takes_the_sla() -> None:
    found = capacity("static")
    assert found.fluid_limit_per_s == pytest.approx(20)
    assert found.per_s == pytest.approx(20, rel=0.06)
    assert not found.too_good


def test_a_cap_holds_the_sla_and_the_delay_ends_the_rate() -> None:
    # 5 slots and 45 ms a step: 5 / 11 tokens / 45 ms.
    found = capacity("static:max_num_seqs=5", Target(Sla(itl_ms=50), max_median_delay_s=0.2))
    assert found.per_s == pytest.approx(5 / 11 / 0.045, rel=0.08)


def test_an_sla_that_no_step_meets_has_no_capacity() -> None:
    found = capacity("static", Target(Sla(itl_ms=39)))
    assert (found.per_s, found.fluid_limit_per_s) == (0.0, 0.0)
    assert found.failure is not None
    assert found.failure.what == "the step of one request is longer than the SLA"


def test_a_setting_that_breaks_the_sla_at_any_rate_has_no_capacity(roughly: None) -> None:
    # Any prompt that meets a decode stalls it for 240 ms, and prompts come at random.
    slow = replace(PLANT, cost=LinearCost(0.040, 0.001, per_prefill_s=0.020))
    plan, ground = parse_policy("static:exchange_hz=1", TARGET.sla, ENGINE), Ground(slow)
    one = make_course(load_workload("fixed:10,11"), ground, TARGET, least=60, least_run_s=15)
    found = find_capacity(one, plan, ground, TARGET)
    assert 0.9 < found.fluid_limit_per_s < 1
    assert found.per_s < 0.3


def test_a_ttft_takes_the_place_of_the_delay(roughly: None) -> None:
    loose = capacity("static:max_num_seqs=5", Target(Sla(ttft_ms=3000)))
    tight = capacity("static:max_num_seqs=5", Target(Sla(ttft_ms=60)))
    assert tight.per_s < loose.per_s


def test_every_rate_serves_the_same_requests_as_many_as_the_run_takes() -> None:
    one = make_course(load_workload("exponential:5,10"), Ground(PLANT), TARGET, least_run_s=60)
    assert one.run_s == 60
    slow, fast = one.requests_at(10.0), one.requests_at(15.0)
    assert (len(slow), len(fast)) == (600, 900)
    assert [r.output_tokens for r in slow] == [r.output_tokens for r in fast[:600]]
    assert slow[99].arrival_s == pytest.approx(1.5 * fast[99].arrival_s)
    assert len(one.requests_at(0.1)) == one.least


def trace(*outcomes: Outcome, gaps: list[tuple[float, float, int]]) -> Trace:
    """A replay of 100 s that ended with its last arrival."""
    first = Outcome(Request(0.0, 1, 1), scheduled_s=90.0)
    return Trace((first, *outcomes), (), make_gaps(gaps), (), 100, 100.0)


def test_only_the_second_half_counts() -> None:
    fine = Outcome(Request(60.0, 1, 9), scheduled_s=61.0)
    late_early = [(9.0, 10.0, 0), (0.04, 60.0, 1), (0.04, 70.0, 1)]
    assert fault_of(trace(fine, gaps=late_early), TARGET) is None
    found = fault_of(trace(fine, gaps=[*late_early, (9.0, 80.0, 1)]), TARGET)
    assert found == "p99 time between tokens 8.82 s, allowed 50 ms"


def test_who_still_waits_counts_with_the_wait_so_far() -> None:
    waiting = Outcome(Request(60.0, 1, 9))
    found = fault_of(trace(waiting, gaps=[]), TARGET)
    assert found == "p50 scheduling delay 40 s, allowed 2 s"


def left_of(*outcomes: Outcome, max_left_s: float = 4.0) -> str | None:
    """What a run of 100 s broke, of 1,000 tokens and these."""
    served = Outcome(Request(0.0, 1000, 9), False, 9, 0.0, 0.1)
    seen = Trace((served, *outcomes), (), make_gaps([]), (), 10_000, 100.0)
    assert fault_of(seen, replace(TARGET, max_median_delay_s=1e9)) is None
    return fault_of(seen, replace(TARGET, max_median_delay_s=1e9, max_left_s=max_left_s))


def test_prompts_that_are_left_can_be_asked_for_beside_the_median() -> None:
    # 5,000 tokens come in 100 s, so 200 in 4 s, and the longest prompt has 1,000.
    others = [Outcome(Request(10.0, 650, 9), False, 9, 10.0, 10.0)] * 4
    left = [
        Outcome(Request(50.0, 1000, 9)),  # left over the whole second half
        Outcome(Request(75.0, 400, 9)),  # over half of it
    ]
    refused = Outcome(Request(9.0, 9000, 9), refused=True)
    assert left_of(*others, *left, refused) is None  # 1,200 left of 1,200
    found = left_of(*others, *left, refused, max_left_s=3.9)
    what = "1200 prompt tokens left to compute on average, allowed 1195"
    assert found == what


@pytest.mark.parametrize(
    ("outcome", "tokens"),
    [
        (Outcome(Request(50.0, 1000, 9), False, 9, 50.0, 100.0), 500),  # half of it over all
        (Outcome(Request(0.0, 1000, 9), False, 9, 0.0, 100.0), 250),  # the second half of it
        (Outcome(Request(50.0, 1000, 9), False, 9, 60.0, 80.0), 400),  # 10 s of all, 20 of half
        (Outcome(Request(50.0, 1000, 9), False, 0, 50.0, computed_tokens=400), 800),
        (Outcome(Request(50.0, 1000, 9), False, 0, 50.0, computed_tokens=1004), 500),
        (Outcome(Request(20.0, 1000, 9), False, 9, 30.0, 49.0), 0),
        (Outcome(Request(20.0, 1000, 9), False, 9, 50.0, 50.0), 0),
        (Outcome(Request(100.0, 1000, 9)), 0),
        (Outcome(Request(20.0, 1000, 9), True), 0),
    ],
)
def test_of_a_prompt_what_is_not_computed_is_left(outcome: Outcome, tokens: int) -> None:
    per_s = 10 if outcome.refused else 20
    allowed_s = (tokens - 1000) / per_s  # beside the longest prompt
    assert left_of(outcome, max_left_s=allowed_s + 0.1) is None
    found = left_of(outcome, max_left_s=allowed_s - 0.1)
    assert found is not None
    assert found.startswith(f"{tokens} prompt tokens left")


# 100 requests of 101 tokens, one a second: 10,000 gaps at most, of which 1% may be late.
STEADY = [Request(float(k), 1, 101) for k in range(101)]


def late(n: int, end_s: float) -> list[tuple[float, float, int]]:
    """So many late gaps that end then."""
    return [(0.06, end_s, 0)] * n


def test_a_run_ends_as_soon_as_its_late_tokens_are_too_many_for_its_whole_length() -> None:
    in_time = [(0.04, 60.0, 0)] * 3000
    watch = Watch(STEADY, TARGET)
    assert not watch(60.0, [], late(500, 10.0))  # the first half fills the engine
    # 10,100 gaps, 500 of them before the middle: 96 may be late in the second half.
    assert not watch(61.0, [], late(500, 10.0) + in_time + late(97, 60.0))
    assert watch(61.5, [], late(500, 10.0) + in_time + late(98, 60.0))
    assert watch.fault is not None
    assert watch.fault == "3.2% of the times between tokens above 50 ms"


def test_ten_times_too_many_late_tokens_end_a_run_before_its_second_half() -> None:
    gaps = [(0.04, 30.0, 0)] * 900 + late(120, 30.0)
    watch = Watch(STEADY, TARGET)
    assert not watch(37.0, [], gaps)  # an eighth of the run has to pass so
    assert watch(38.0, [], gaps)


def test_a_few_that_are_left_end_no_run_where_policies_need_not_serve_in_order() -> None:
    # 61 have come by 60 s, of which some wait since the beginning.
    watch = Watch(STEADY, replace(TARGET, max_left_s=4.0))
    assert not watch(60.0, [0.0] * 15, [])
    assert watch(60.0, [0.0] * 16, [])
    assert Watch(STEADY, TARGET)(60.0, [0.0], [])
    in_time = replace(TARGET, sla=Sla(itl_ms=50, ttft_ms=2000), max_left_s=4.0)
    assert Watch(STEADY, in_time)(60.0, [0.0], [])


def test_a_queue_that_waits_ten_times_too_long_ends_a_run() -> None:
    watch = Watch(STEADY, TARGET)
    assert not watch(30.0, [5.0, 10.5, 29.0], [])
    assert watch(31.0, [5.0, 10.5, 29.0], [])
    assert watch.fault == "half of the queue has waited for 20 s"


def test_a_setting_that_breaks_the_sla_by_itself_is_given_up_at_the_lowest_rate() -> None:
    # Prompts come in bursts at any rate, and each stalls those before it for eight seconds.
    slow = replace(PLANT, cost=LinearCost(0.040, 0.001, per_prefill_s=0.020))
    plan, ground = parse_policy("static", TARGET.sla, ENGINE), Ground(slow)
    one = make_course(
        load_workload("fixed:400,11"), ground, TARGET, least=60, gap_cv=8, least_run_s=15
    )
    finished: list[int] = []  # of the highest rate, one between, and the lowest
    found = find_capacity(one, plan, ground, TARGET, finished.append)
    assert found.per_s == 0
    assert found.failure is not None
    assert found.failure.rate_per_s == pytest.approx(one.fluid_limit_per_s / 64)
    assert sum(finished) <= 3 * 60
