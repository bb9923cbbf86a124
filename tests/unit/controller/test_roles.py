"""How many prefill engines, by figures that can be worked out by hand."""

import pytest

from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.roles import Fleet, Transfer, best_of, prefill_tokens_per_s, split_of, splits

MODEL = StepModel(0.0269, 0.2308e-3, 0.0, 0.12e-3, 0.0, 0.0)
FLEET = Fleet(4, 256, 2048, 200_000)
FAST, SLOW = Transfer(327_680, 25e9, 0.005), Transfer(327_680, 1e9 / 8, 0.005)


def lengths(i: int, o: int) -> LengthMoments:
    return LengthMoments(1, i, o, i * i, o * o, i * o)


def test_a_prefill_engine_shares_the_fixed_part_among_its_budget() -> None:
    assert prefill_tokens_per_s(MODEL, 2048, 257) == pytest.approx(7511, abs=1)


def test_short_answers_want_half_of_the_engines() -> None:
    found = splits(MODEL, lengths(257, 62), FLEET, FAST, 0.05)
    best = best_of(found)
    assert best.prefill == 2
    assert best.through_per_s == pytest.approx(2 * 7511 / 257, rel=1e-3)
    assert best.per_s / found[0].per_s == pytest.approx(1.48, abs=0.01)


def test_long_answers_on_four_engines_want_none_and_on_sixteen_two() -> None:
    asked = lengths(257, 447)
    assert best_of(splits(MODEL, asked, FLEET, FAST, 0.05)).prefill == 0
    assert best_of(splits(MODEL, asked, Fleet(16, 256, 2048, 200_000), FAST, 0.05)).prefill == 2


def test_a_slow_card_keeps_prompts_where_they_are() -> None:
    assert best_of(splits(MODEL, lengths(2048, 28), FLEET, FAST, 0.05)).prefill == 3
    assert best_of(splits(MODEL, lengths(2048, 28), FLEET, SLOW, 0.05)).prefill == 0


def test_nothing_is_carried_where_d_is_out_of_reach() -> None:
    assert split_of(MODEL, lengths(257, 62), FLEET, FAST, 0.02, 1).per_s == 0


def test_one_engine_decodes() -> None:
    found = splits(MODEL, lengths(257, 62), Fleet(1, 256, 2048, 200_000), FAST, 0.05)
    assert [one.prefill for one in found] == [0]
