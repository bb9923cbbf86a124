"""A step that is sized for those that run in it: forced chunks, late gaps, who is left out."""

import math

import numpy as np
import pytest

from controller.agreements import Agreement
from controller.models.requests import Requests
from controller.models.step_time import StepModel
from controller.policies.class_chunks import ClassChunks
from tests.unit.controller.policies.test_class_chunks import (
    BATCH,
    GOLD,
    GOLD_S,
    MODEL,
    SILVER,
    chunk,
    left_out,
    running,
    sample,
    sizer,
)


def may_be_late(one: ClassChunks, *kinds: int) -> bool:
    one.decoding(np.array(kinds, dtype=np.int64))
    return one.may_be_late(len(kinds))


@pytest.mark.parametrize(("step_s", "gap_s"), [(0.15, 0.2), (0.04, 0.12)])
def test_a_gap_is_late_once_be_it_by_its_own_step_or_by_those_before(
    step_s: float, gap_s: float
) -> None:
    one = sizer()
    for _ in range(60):
        one.observe(sample(0.04, (0, 1, 0), 10))
    assert may_be_late(one, *[1] * 5)
    one.observe(sample(step_s, (0, 1, 0), 10, longer=((1, gap_s),)))
    assert may_be_late(one, *[1] * 4)
    assert not may_be_late(one, *[1] * 5)


def forced(*agreements: Agreement) -> ClassChunks:
    """A prompt had no room beside those of the first agreement for a hundred steps."""
    one = sizer(*agreements)
    for _ in range(60):
        one.observe(sample(MODEL.predict_s(2, 0, 10, 0), (1, 1, 0), 10))
    for _ in range(100):
        assert not one.forced
        chunk(one, *[0] * 200)
    assert one.forced
    return one


def test_a_chunk_without_room_holds_for_one_step() -> None:
    one, crowd = forced(), running(*[2] * 200)
    assert one.starting(crowd, running(0, 1, 2)) == 3
    one.decoding(np.array([2]))
    assert one.starting(crowd, running(0, 1, 2)) == 2


def test_whose_chunk_had_no_room_may_be_late_in_a_step_that_another_class_binds() -> None:
    one = forced(GOLD, Agreement(0.03, 99))
    assert not one.may_be_late(1)
    assert chunk(one, 0, 1) in (50, 51)  # 25.5 - 20.4 ms
    assert one.may_be_late(2)


def asked(one: ClassChunks, batch: Requests, waited_s: object) -> list[float]:
    """Of whom the prompts were asked for: of those with less than this between tokens."""
    waited, found = np.array(waited_s, dtype=float), list[float]()
    everybody = np.ones(len(batch), dtype=bool)
    one.left_out(batch, everybody, lambda: waited, lambda itl_s: found.append(itl_s) or 0)
    return found


def test_prompts_go_before_decodes_of_the_loosest_that_can_wait() -> None:
    batch = running(0, *[1] * 60, *[2] * 60)
    assert asked(sizer(), batch, [0.0] * 121) == [math.inf]
    # Those without a bound have to decode now: prompts of silver do not go before silver.
    assert asked(sizer(), batch, [0.0] * 61 + [0.95] * 60) == [SILVER.itl_s]


def test_three_classes_by_hand() -> None:
    # 22.5 ms, of which gold takes 0.2. In each step of 42.5 half of silver has its turn, 30, and
    # 2.55 of the others, 3. Prompts of 10 ms are before the rest: 12.3 are 61, 28 more of silver.
    batch = running(0, *[1] * 60, *[2] * 60)
    assert left_out(sizer(), batch, wanted=100) == [59, 60, *range(64, 121)]


def test_who_is_left_out_is_back_before_the_margin_of_the_strictest() -> None:
    # 100 - 7.5 ms less what it has waited for are to hold two steps of 42.5.
    batch = running(0, *[1] * 149)
    assert len(left_out(sizer(), batch, waited_s=0.0074)) == 150 - 112
    assert left_out(sizer(), batch, waited_s=0.0076) == []


def test_a_few_decodes_are_left_out_all_the_same_to_find_out_what_is_out_of_reach() -> None:
    # Steps take up to 2.5 times as long as predicted: of 50 ms, 20 are for one decode of 20.2.
    one = sizer()
    one.receive(StepModel(0.02, 2e-4, 0.0, 1e-4, 0.0, 0.0, tail_frac=1.5))
    found = [left_out(one, running(0, *[2] * 30)) for _ in range(17)]
    assert found == [[*range(1, 31)], *[[]] * 15, [*range(1, 31)]]


def test_nobody_is_left_out_where_all_take_half_of_the_room_but_for_rounding() -> None:
    few_s = (GOLD_S - 0.02) / 2
    for frac, all_decode in ((1 - 5e-10, True), (1 + 5e-10, False)):
        one = ClassChunks(0.05)
        one.receive(StepModel(0.02, frac * few_s / 32, 0.0, 1e-4, 0.0, 0.0))
        one.know((GOLD, SILVER, BATCH))
        assert (left_out(one, running(0, *[2] * 31), wanted=5000) == []) is all_decode
