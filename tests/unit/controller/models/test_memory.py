"""Equations 8 to 14 of arXiv 2503.05248, one number each."""

import math

import pytest

from controller.models import memory

MEAN, VARIANCE, ETA = 200.0, 5000.0, 20_000.0


def test_the_equations_by_one_number_each() -> None:
    assert memory.theta(0.02) == pytest.approx(2.0537489)
    assert memory.theta(0.5) == pytest.approx(0.0)
    assert memory.exact_batch(ETA, MEAN, VARIANCE, memory.theta(0.02)) == 92
    # Line 1 of algorithm 1: theta sigma_S = 2 x sqrt(100 x 25) = 100; mu_S = 100 x 30.
    assert memory.printed_buffer(100, 4000, 30, 25, 2.0) == pytest.approx(900)
    assert memory.safety_buffer(100, 25, 2.0) == pytest.approx(100)
    # Eq. 14, rounded down.
    assert memory.linear_batch(4000, 900, 30) == 103
    assert memory.linear_batch(4000, 1000, 30) == 100
    # The authors' published formula: 500 of 1250 blocks under 50 requests, 95% of memory.
    assert memory.published_batch(1250, 500, 50, 0.95) == 118


@pytest.mark.parametrize("b", range(1, 60))
def test_exact_batch_of_fixed_lengths_fills_memory_to_the_last_token(b: int) -> None:
    assert memory.exact_batch(300 * b, 300, 0, memory.theta(0.02)) == b
    assert memory.exact_batch(300 * b + 299, 300, 0, memory.theta(0.02)) == b


@pytest.mark.parametrize("eta", [1_000, 20_000, 1_000_000])
def test_flaw_the_printed_buffer_gives_the_same_batch_whatever_the_memory(eta: float) -> None:
    l0 = memory.printed_buffer(100, eta, 30, 25, 2.0)
    # b + theta s sqrt(b) / m: eta is gone.
    assert memory.linear_batch(eta, l0, 30) == 100 + math.floor(100 / 30)


@pytest.mark.parametrize("start", [1, 92, 1000])
def test_the_other_reading_of_the_buffer_settles_at_eq_12(start: int) -> None:
    theta, b = memory.theta(0.02), start
    for _ in range(20):
        b = memory.linear_batch(ETA, memory.safety_buffer(b, VARIANCE, theta), MEAN)
    assert abs(b - memory.exact_batch(ETA, MEAN, VARIANCE, theta)) <= 1
