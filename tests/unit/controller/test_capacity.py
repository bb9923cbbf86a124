"""Requests per second inside the SLA, against arithmetic done by hand."""

import math
from dataclasses import replace

import pytest

from controller.capacity import (
    capacity_error_frac,
    capacity_per_s,
    out_of_reach,
    relative_work,
    sla_batch,
    step_limit_s,
)
from controller.models.step_time import StepModel
from tests.builders import moments_of

# 10 ms a step, 100 us a decode, 20 us a prefill token; per KV token nothing.
MODEL = StepModel(c0=0.010, c1=1e-4, c2=0.0, c3=2e-5, c4=0.0, sigma_s=0.0)
LENGTHS = moments_of([(200, 100)])  # 0.004 s of prefill, 0.010 s of decode per request


FIXED = StepModel(0.010, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("model", "cap", "itl_s", "per_s"),
    [
        # A batch of 100 shares each 10 ms: 0.004 + 0.010 + 100 x 0.010 / 100 = 0.024 s a request.
        (MODEL, 100, None, 1 / 0.024),
        # Steps are the limit: 47.6/s, where a batch of 1000 would carry 66.7/s in longer steps.
        (MODEL, 1000, 0.030, 0.02 / (0.03 * 0.014)),
        # A batch of 10 at 1 / (0.014 + 0.100): its steps are 11 ms long, not the 30 allowed.
        (MODEL, 10, 0.030, 1 / 0.114),
        # They meet at B = q E[out] D.
        (MODEL, 142, 0.030, 1 / (0.014 + 1 / 142)),
        (MODEL, 143, 0.030, 0.02 / (0.03 * 0.014)),
        # It holds 200 + 50 tokens on average: 100 steps x 250e-6 s.
        (StepModel(0.010, 0.0, 1e-6, 0.0, 0.0, 0.0), 10**9, None, 1 / 0.025),
        (MODEL, 100, 0.010, 0),  # the fixed part is beyond the SLA
        (MODEL, 100, 0.005, 0),
        (FIXED, 50, None, 50.0),
        (FIXED, 50, 0.030, 50.0),
        (StepModel(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 100, None, None),  # a model without cost
        (StepModel(0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 100, 0.030, None),
    ],
)
def test_capacity_by_hand(model, cap, itl_s, per_s):
    assert capacity_per_s(model, LENGTHS, cap, itl_s) == pytest.approx(per_s)


@pytest.mark.parametrize("itl_s", [0.001, 0.010, 0.011])
def test_an_sla_out_of_reach_is_given_up_for_two_steps_of_one_decode(itl_s: float) -> None:
    assert capacity_per_s(MODEL, LENGTHS, 100, itl_s) == 0
    assert not MODEL.feasible(itl_s)
    assert step_limit_s(MODEL, itl_s, itl_s) == pytest.approx(0.0202)
    assert step_limit_s(MODEL, itl_s, 9.0) == pytest.approx(0.0202)


def test_an_sla_in_reach_is_kept() -> None:
    assert MODEL.feasible(0.012)
    assert step_limit_s(MODEL, 0.012, 0.0115) == 0.0115
    # A tenth of the time after one decode of 10.1 ms, for prompts.
    assert step_limit_s(MODEL, 0.012, 0.009) == pytest.approx(0.0101 + 0.00019)
    # 2 ms for 140 us a request: 100 of its decode, 40 of a hundredth of its prompt.
    assert sla_batch(MODEL, LENGTHS, 0.012) == pytest.approx(0.002 / 140e-6)
    assert sla_batch(MODEL, LENGTHS, 0.009) == 0


def test_what_a_step_with_prompts_takes_more_is_part_of_it_at_capacity() -> None:
    mixed = replace(MODEL, c0=0.007, mixed_s=0.003)
    for itl_s in (None, 0.030):
        expected = capacity_per_s(MODEL, LENGTHS, 1000, itl_s)
        assert capacity_per_s(mixed, LENGTHS, 1000, itl_s) == pytest.approx(expected)
    assert sla_batch(mixed, LENGTHS, 0.030) == pytest.approx(sla_batch(MODEL, LENGTHS, 0.030))
    # Decodes alone keep D, and no prompt does.
    assert capacity_per_s(replace(mixed, mixed_s=0.03), LENGTHS, 1000, 0.030) == 0


@pytest.mark.parametrize(("tail_frac", "out"), [(0.0, False), (0.35, False), (0.353, True)])
def test_reach_is_judged_at_the_percentile(tail_frac: float, out: bool) -> None:
    noisy = replace(MODEL, tail_frac=tail_frac)  # one decode: 10.1 ms, and 1.1 times it 11.11
    assert out_of_reach(noisy, 0.01502) == out
    assert noisy.feasible(0.01502)
    assert (capacity_per_s(noisy, LENGTHS, 100, 0.01502) == 0) == out


def test_batch_and_capacity_leave_room_for_the_percentile() -> None:
    noisy = replace(MODEL, tail_frac=0.5)
    assert sla_batch(noisy, LENGTHS, 0.030) == sla_batch(MODEL, LENGTHS, 0.020)
    assert capacity_per_s(noisy, LENGTHS, 1000, 0.030) == capacity_per_s(
        MODEL, LENGTHS, 1000, 0.020
    )
    assert capacity_per_s(noisy, LENGTHS, 100, None) == capacity_per_s(MODEL, LENGTHS, 100, None)


WORKED = StepModel(0.01, 2e-4, 0.0, 1e-4, 0.0, 0.0)  # 1e-4 s a prompt token, 2e-4 s an output


def test_a_capacity_is_as_sure_as_the_mean_work_of_those_that_ended() -> None:
    # Works of 0.02 and 0.04 s: a standard deviation of a third of the mean.
    two = moments_of([(0, 100), (0, 200)])
    assert capacity_error_frac(WORKED, two) == pytest.approx(math.sqrt((1 / 9 + 1 / 2) / 2))
    many = moments_of([(0, 100), (0, 200)] * 500)
    assert capacity_error_frac(WORKED, many) == pytest.approx(math.sqrt((1 / 9 + 1e-3) / 1000))


def test_the_work_of_a_longer_prompt_is_its_prefill_and_what_it_holds() -> None:
    ended = moments_of([(100, 100)] * 4)  # 0.01 s of prefill, 0.02 s of decode
    assert relative_work(WORKED, ended, 100) == 1
    assert relative_work(WORKED, ended, 400) == pytest.approx(2)
    held = StepModel(0.01, 0.0, 1e-6, 1e-4, 0.0, 0.0)  # 150 tokens held, for 100 steps
    assert relative_work(held, ended, 200) == pytest.approx((0.02 + 0.025) / (0.01 + 0.015))
    assert relative_work(WORKED, moments_of([]), 400) == 1


def test_what_is_cached_of_prompts_costs_no_prefill() -> None:
    """As prompts that are so much shorter, but that as much memory is read."""
    plain = moments_of([(1000, 100)] * 4)
    cached = replace(plain, cached=3600)
    assert (cached.mean_input, cached.mean_computed) == (1000, 100)
    assert cached.computed_frac == pytest.approx(0.1)
    model = replace(MODEL, c3=1e-4)
    short = moments_of([(100, 100)] * 4)
    for itl_s in (None, 0.05):
        assert capacity_per_s(model, cached, 64, itl_s) == pytest.approx(
            capacity_per_s(model, short, 64, itl_s)
        )
    assert sla_batch(model, cached, 0.05) == pytest.approx(sla_batch(model, short, 0.05))
    assert relative_work(model, cached, 2000) < relative_work(model, plain, 2000)
