"""How many prefill engines, by figures that can be worked out by hand."""

import pytest

from controller.config import Sla
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.roles import (
    Fleet,
    Transfer,
    _Way,
    best_of,
    prefill_tokens_per_s,
    split_of,
    splits,
)

MODEL = StepModel(0.0269, 0.2308e-3, 0.0, 0.12e-3, 0.0, 0.0)
FLEET = Fleet(4, 256, 2048, 200_000)
SLA, IN_TIME = Sla(itl_ms=50), Sla(itl_ms=50, ttft_ms=2000)
FAST, SLOW = Transfer(327_680, 25e9, 0.005), Transfer(327_680, 1e9 / 8, 0.005)


def lengths(i: int, o: int) -> LengthMoments:
    return LengthMoments(1, i, o, i * i, o * o, i * o)


def test_a_prefill_engine_shares_the_fixed_part_among_its_budget() -> None:
    assert prefill_tokens_per_s(MODEL, 2048, 257) == pytest.approx(7511, abs=1)


def test_short_answers_want_half_of_the_engines() -> None:
    found = splits(MODEL, lengths(257, 62), FLEET, FAST, SLA)
    best = best_of(found)
    assert best.prefill == 2
    assert best.through_per_s == pytest.approx(2 * 7511 / 257, rel=1e-3)
    assert best.per_s / found[0].per_s == pytest.approx(1.48, abs=0.01)


def test_long_answers_on_four_engines_want_none_and_on_sixteen_two() -> None:
    asked = lengths(257, 447)
    assert best_of(splits(MODEL, asked, FLEET, FAST, SLA)).prefill == 0
    assert best_of(splits(MODEL, asked, Fleet(16, 256, 2048, 200_000), FAST, SLA)).prefill == 2


def test_a_slow_card_keeps_prompts_where_they_are() -> None:
    assert best_of(splits(MODEL, lengths(2048, 28), FLEET, FAST, SLA)).prefill == 3
    assert best_of(splits(MODEL, lengths(2048, 28), FLEET, SLOW, SLA)).prefill == 0


def test_nothing_is_carried_where_d_is_out_of_reach() -> None:
    assert split_of(MODEL, lengths(257, 62), FLEET, FAST, Sla(itl_ms=20), 1).per_s == 0


def spread(i: int, o: int) -> LengthMoments:
    """Exponential lengths."""
    n = 1000
    return LengthMoments(n, n * i, n * o, 2 * n * i * i, 2 * n * o * o, n * i * o)


def test_a_prompt_that_is_late_on_its_way_goes_through_no_pool() -> None:
    # 8,192 tokens: 1.1 s to compute and 0.86 s on a card of 25 Gbit/s, 1.2 s together at 200.
    at_25 = Transfer(327_680, 25e9 / 8, 0.005)
    asked = spread(8192 * 10 // 46, 28)  # one in a hundred is as long as that
    assert best_of(splits(MODEL, asked, FLEET, at_25, SLA)).prefill == 2
    assert best_of(splits(MODEL, asked, FLEET, at_25, IN_TIME)).prefill == 0
    assert best_of(splits(MODEL, asked, FLEET, FAST, IN_TIME)).prefill == 3


def test_the_wait_at_one_engine_is_that_of_its_queue() -> None:
    # Prompts of 0.1 s at half the load wait 50 ms on average (Pollaczek-Khinchine), half of them
    # not at all: a standard deviation of 86.6 ms. The percentile is 3.605 of these beyond.
    way, sla = _Way(1e-3, 1, 0.0, 1, 0.0, 1), Sla(itl_ms=50, ttft_ms=30 + 150 + 3.60517 * 86.6025)
    assert way.in_time_per_s(lengths(100, 1), sla, 0.03) == pytest.approx(5, abs=0.01)
