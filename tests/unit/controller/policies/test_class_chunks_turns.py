"""What each class keeps back, is held to and pays for, and what decodes read of KV memory."""

import pytest

from controller.agreements import Agreement
from controller.models.step_time import StepModel
from controller.policies.class_chunks import ClassChunks
from tests.unit.controller.policies.test_class_chunks import (
    BATCH,
    GOLD,
    MODEL,
    SILVER,
    aim,
    chunk,
    left_out,
    running,
    sample,
    sizer,
)


def test_every_agreement_is_held_to_what_its_tokens_wait_on_their_way_out() -> None:

    whole, known, later = sizer(), sizer(), ClassChunks(0.05)
    known.hold_to(0.9)
    later.receive(MODEL)
    later.hold_to(0.9)
    later.know((GOLD, SILVER, BATCH))
    for one in (whole, known, later):
        for _ in range(20):
            one.observe(sample(MODEL.predict_s(2, 0, 200, 0), (1, 1, 0), 200))
    for kind, less_s in ((0, 0.005), (1, 0.01)):
        held = chunk(known, kind)
        assert chunk(whole, kind) - held == pytest.approx(less_s / 1e-4, rel=0.3)
        assert chunk(later, kind) == held


def test_what_is_out_of_reach_again_is_probed_at_once() -> None:
    one, batch = sizer(), running(0, *[2] * 99)
    slow = StepModel(0.06, 2e-4, 0.0, 1e-4, 0.0, 0.0)
    for _ in range(2):
        one.receive(slow)
        found = [bool(left_out(one, batch)) for _ in range(5)]
        assert found == [True, False, False, False, False]
        one.receive(MODEL)
        left_out(one, batch)


def test_late_tokens_of_those_left_out_leave_their_class_less_to_spare() -> None:

    one, batch = aim(sizer()), running(0, *[1] * 149)
    assert len(left_out(one, batch)) == 150 - 112
    for _ in range(5):  # 2% of 100 ms each: 90 - 7.5 ms do not hold two steps of 42.5
        step_s = MODEL.predict_s(2, 0, 10, 0)
        one.observe(sample(step_s, (1, 1, 0), 10, longer=((1, 0.12),)))
    assert left_out(aim(one), batch) == []


READING = StepModel(0.02, 1e-4, 1e-6, 1e-4, 0.0, 0.0)  # 0.2 ms a decode of 100 tokens as well


def reading() -> ClassChunks:
    one = aim(sizer())
    one.receive(READING)
    return one


def test_what_decodes_read_counts_when_some_are_left_out() -> None:
    one = reading()
    assert left_out(one, running(0, *[2] * 111)) == []
    assert len(left_out(one, running(0, *[2] * 255))) == 256 - 112
    assert len(left_out(one, running(0, *[2] * 255, computed=300))) == 256 - 56


def test_what_decodes_read_counts_when_others_want_to_start() -> None:
    one = reading()
    assert one.starting(running(*[0] * 110), running(0, 0, 0)) == 1
    assert one.starting(running(*[0] * 55, computed=300), running(0, 0, 0, computed=300)) == 1


def test_agreements_with_one_time_between_tokens_share_a_step_time_target() -> None:
    one = sizer(GOLD, Agreement(0.05, 99, 9.0))
    for _ in range(60):
        one.observe(sample(0.04, (1, 1), 10))
    for number in (0, 1):
        one.resumed(9.0, number)
    (shared,) = one._sizers.values()
    assert shared._target.not_caused == pytest.approx(2 / 121, rel=0.05)


def test_a_class_keeps_back_half_of_its_time_at_most() -> None:

    one = sizer()
    for _ in range(100):
        step_s = MODEL.predict_s(2, 0, 10, 0)
        one.observe(sample(step_s, (1, 1, 0), 10, longer=((1, 0.12),)))
    assert one._kept_frac[1] == 0.5
