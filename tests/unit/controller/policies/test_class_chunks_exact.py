"""A step that is sized for those that run in it: late gaps, who is left out, who starts."""

import math

import numpy as np
import pytest

from controller.models.requests import Requests
from controller.models.step_target import StepTarget
from controller.models.step_time import StepModel
from controller.policies.class_chunks import ClassChunks
from tests.unit.controller.policies.test_class_chunks import (
    BATCH,
    GOLD,
    GOLD_S,
    SILVER,
    aim,
    left_out,
    running,
    sample,
    sizer,
)


@pytest.mark.parametrize(("step_s", "gap_s"), [(0.15, 0.2), (0.04, 0.12)])
def test_a_gap_is_late_once_be_it_by_its_own_step_or_by_those_before(
    step_s: float, gap_s: float
) -> None:
    one = sizer()
    for _ in range(60):
        one.observe(sample(0.04, (0, 1, 0), 10))
    one.observe(sample(step_s, (0, 1, 0), 10, longer=((1, gap_s),)))
    assert one._sizers[0.1, 99.0]._target.not_caused == pytest.approx(1 / 61, rel=0.05)


def test_some_start_beside_others_however_short_the_target_or_infeasible_d_is() -> None:
    one = aim(sizer(), 0.1)
    one.receive(StepModel(0.03, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    # 30.2 ms are one decode, and 1.98 a tenth of what D leaves beside it: ten decodes.
    assert one.starting(running(0), running(*[0] * 30)) == 9
    one.receive(StepModel(0.06, 2e-4, 0.0, 1e-4, 0.0, 0.0))  # D is infeasible: 120.4 ms
    assert one.starting(running(0), running(*[0] * 400)) in (300, 301)


def test_cap_and_capacity_are_by_the_class_whose_d_is_nearest_to_the_sla(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = sizer()
    full_s = {0.05: 0.04, 0.1: 0.1}
    monkeypatch.setattr(StepTarget, "full_s", property(lambda target: full_s[target.limit_s]))
    assert one.published.tail_frac == pytest.approx(0.25)
    assert one.published.costs == one.model.costs
    monkeypatch.undo()
    assert ClassChunks(0.05).published.tail_frac == 0


def asked(one: ClassChunks, batch: Requests, waited_s: object) -> list[float]:
    """Of whom the prompts were asked for: of those with less than this between tokens."""
    waited, found = np.array(waited_s, dtype=float), list[float]()
    everybody = np.ones(len(batch), dtype=bool)
    one.left_out(batch, everybody, lambda: waited, lambda itl_s: found.append(itl_s) or 0)
    return found


def test_prompts_go_before_decodes_of_the_loosest_that_can_wait() -> None:
    batch = running(0, *[1] * 60, *[2] * 60)
    assert asked(aim(sizer()), batch, [0.0] * 121) == [math.inf]
    # Those without a bound have to decode now: prompts of silver do not go before silver.
    assert asked(aim(sizer()), batch, [0.0] * 61 + [0.95] * 60) == [SILVER.itl_s]


def test_three_classes_by_hand() -> None:
    # 22.5 ms, of which gold takes 0.2. In each step of 42.5 half of silver has its turn, 30, and
    # 2.55 of the others, 3. Prompts of 10 ms are before the rest: 12.3 are 61, 28 more of silver.
    batch = running(0, *[1] * 60, *[2] * 60)
    assert left_out(aim(sizer()), batch, wanted=100) == [59, 60, *range(64, 121)]


def test_who_is_left_out_is_back_with_what_steps_leave_of_the_strictest_d() -> None:
    # 100 - 7.5 ms less what it has waited for are to hold two steps of 42.5.
    batch = running(0, *[1] * 149)
    assert len(left_out(aim(sizer()), batch, waited_s=0.0074)) == 150 - 112
    assert left_out(aim(sizer()), batch, waited_s=0.0076) == []


def test_a_few_decodes_are_left_out_all_the_same_to_find_out_what_is_out_of_reach() -> None:
    # Two steps of one decode: 52.2 ms are left for 31 decodes of 6.2.
    one = sizer()
    one.receive(StepModel(0.052, 2e-4, 0.0, 1e-4, 0.0, 0.0))
    found = [left_out(one, running(0, *[2] * 30)) for _ in range(17)]
    assert found == [[*range(1, 31)], *[[]] * 15, [*range(1, 31)]]


def test_nobody_is_left_out_where_all_take_half_of_the_room_but_for_rounding() -> None:
    few_s = (GOLD_S - 0.02) / 2
    for frac, all_decode in ((1 - 5e-10, True), (1 + 5e-10, False)):
        one = ClassChunks(0.05)
        one.receive(StepModel(0.02, frac * few_s / 32, 0.0, 1e-4, 0.0, 0.0))
        one.know((GOLD, SILVER, BATCH))
        aim(one)
        assert (left_out(one, running(0, *[2] * 31), wanted=5000) == []) is all_decode
