"""The capacity search on plants whose capacity is known."""

from dataclasses import replace

import pytest

from benchmarks.capacity_search import (
    PRECISION,
    Capacity,
    Course,
    Target,
    find_capacity,
    holds_target,
    make_course,
)
from benchmarks.engine import Ground
from benchmarks.policies import EngineOptions, parse_policy
from benchmarks.requests import Request
from benchmarks.trace import Outcome, Trace, make_gaps
from benchmarks.workloads import load_workload
from controller.config import Sla
from replicas.profile import LinearCost, StepProfile

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
    assert capacity("static", Target(Sla(itl_ms=39))) == Capacity(0.0, 0.0)


def test_a_setting_that_breaks_the_sla_at_any_rate_has_no_capacity() -> None:
    # Any prompt that meets a decode stalls it for 240 ms, and prompts come at random.
    slow = replace(PLANT, cost=LinearCost(0.040, 0.001, per_prefill_s=0.020))
    plan, ground = parse_policy("static:exchange_hz=1", TARGET.sla, ENGINE), Ground(slow)
    one = make_course(load_workload("fixed:10,11"), ground, TARGET, least=60, least_run_s=15)
    found = find_capacity(one, plan, ground, TARGET)
    assert 0.9 < found.fluid_limit_per_s < 1
    assert found.per_s < 0.3


def test_a_ttft_takes_the_place_of_the_delay() -> None:
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
    assert holds_target(trace(fine, gaps=late_early), TARGET)
    assert not holds_target(trace(fine, gaps=[*late_early, (9.0, 80.0, 1)]), TARGET)


def test_who_still_waits_counts_with_the_wait_so_far() -> None:
    waiting = Outcome(Request(60.0, 1, 9))
    assert not holds_target(trace(waiting, gaps=[]), TARGET)


def test_a_capacity_above_the_fluid_limit_is_too_good() -> None:
    assert Capacity(10.0 * (1 + 2 * PRECISION), 10.0).too_good
    assert not Capacity(10.0, 10.0).too_good
