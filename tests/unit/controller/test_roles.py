"""How many prefill engines, by figures that can be worked out by hand."""

import pytest

from controller.config import Sla
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.roles import (
    DWELL_S,
    Fleet,
    RoleChooser,
    Split,
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


def test_one_engine_decodes() -> None:
    found = splits(MODEL, lengths(257, 62), Fleet(1, 256, 2048, 200_000), FAST, SLA)
    assert [one.prefill for one in found] == [0]


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


def test_short_prompts_fill_the_pool_within_their_time() -> None:
    at_25 = Transfer(327_680, 25e9 / 8, 0.005)
    (most, held) = (
        split_of(MODEL, spread(257, 62), FLEET, at_25, sla, 2).through_per_s
        for sla in (SLA, IN_TIME)
    )
    assert 0.93 * most < held < most


def test_the_wait_at_one_engine_is_that_of_its_queue() -> None:
    # Prompts of 0.1 s at half the load wait 50 ms on average (Pollaczek-Khinchine), half of them
    # not at all: a standard deviation of 86.6 ms. The percentile is 3.605 of these beyond.
    way, sla = _Way(1e-3, 1, 0.0, 1, 0.0, 1), Sla(itl_ms=50, ttft_ms=30 + 150 + 3.60517 * 86.6025)
    assert way.in_time_per_s(lengths(100, 1), sla, 0.03) == pytest.approx(5, abs=0.01)


def test_who_has_no_time_for_the_handover_has_none_for_the_pool() -> None:
    late, soon = (
        split_of(MODEL, lengths(10, 62), FLEET, FAST, Sla(itl_ms=50, ttft_ms=ms), 2, direct=False)
        for ms in (79, 120)
    )
    assert late.per_s == 0
    assert soon.per_s > 0


def test_roles_do_not_change_for_a_little_more() -> None:
    def see(first: float) -> int:
        return chooser.see([Split(0, first, 0.0), Split(1, 100.0, 0.0)], now_s)

    chooser, now_s = RoleChooser(), 0.0
    assert see(10.0) == 1
    now_s = DWELL_S
    assert (see(104.0), see(106.0)) == (1, 0)


def test_places_among_decodes_are_not_filled_to_the_last() -> None:
    # Three prefill engines have time to spare; the fourth has 100 places for answers of 10 s.
    asked = spread(257, 200)
    all_places, in_time = (split_of(MODEL, asked, FLEET, FAST, sla, 3) for sla in (SLA, IN_TIME))
    assert all_places.through_per_s == pytest.approx(100 / 10, rel=0.01)
    assert 0.75 < in_time.through_per_s / all_places.through_per_s < 0.95


def test_where_no_prompt_is_beside_them_few_decodes_end_their_steps_sooner() -> None:
    # 4 places on each of two engines: 8 tokens in 28 ms, not in the 50 that prompts would make it.
    few = Fleet(3, 4, 2048, 200_000)
    found = split_of(MODEL, lengths(10, 100), few, FAST, SLA, 1, direct=False)
    assert found.per_s == pytest.approx(8 / (100 * (0.0269 + 4 * 0.2308e-3)), rel=0.01)
    assert split_of(MODEL, lengths(10, 100), few, FAST, SLA, 1).per_s >= found.per_s
