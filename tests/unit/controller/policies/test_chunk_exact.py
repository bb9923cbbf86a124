"""The prefill chunk, number by number."""

from types import SimpleNamespace

import numpy as np
import pytest

from controller.capacity import out_of_reach
from controller.models.lookahead import Forecast
from controller.models.step_time import StepModel
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample

# 20 ms, 0.2 ms a decode, 0.1 us a KV token, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 0.0, 0.0)
# Margin and stair of a new one: three spreads of 2.5 ms, and nothing.
UNTIL_S = 0.05 - 0.0075


def sizer(model: StepModel = MODEL, limit_s: float = 0.05) -> ChunkSizer:
    one = ChunkSizer(limit_s, 99)
    one.receive(model)
    return one


def test_before_the_first_step_there_are_three_spreads_of_margin_and_no_stair() -> None:
    assert sizer().until_s == pytest.approx(UNTIL_S)


def test_a_tenth_of_the_room_above_one_decode_is_always_left() -> None:
    # One decode takes 20.2 ms, and the SLA less its margin is 20.4: 20.2 + 0.1 x 3.8 is more.
    assert sizer(limit_s=0.024).until_s == pytest.approx(0.0202 + 0.1 * 0.0038)


def test_the_chunk_is_whole_tokens_of_what_is_left_up_to_the_most() -> None:
    # 42.5 - 20 - 10 - 0.55 ms leave 11.95: 119.5 tokens.
    assert sizer().chunk(50, 5500, 0, least=16, most=2048) == 119
    assert sizer().chunk(50, 5500, 0, least=16, most=100) == 100
    assert sizer().chunk(50, 5500, 0, least=16, most=0) == 0
    assert sizer().chunk(500, 5500, 0, least=16, most=2048) == 0


@pytest.mark.parametrize(("floor", "steps"), [(0.01, 100), (0.02, 50), (0.03, 34)])
def test_a_prompt_without_room_gets_the_sla_beside_the_decodes_in_its_share_of_the_steps(
    floor: float, steps: int
) -> None:
    one = ChunkSizer(0.05005, 99, floor)
    one.receive(MODEL)
    # 50.05 ms more than 200 decodes take: 500.5 tokens.
    chunks = [one.chunk(200, 0, 0, least=16, most=2048) for _ in range(steps + 3)]
    # Whether it was computed is seen a step later; where it was not, it comes again after that.
    assert chunks == [0] * (steps - 1) + [500, 0, 500, 0]
    assert one.chunk(200, 0, 0, least=600, most=2048) == 600
    one.chunk(200, 0, 0, least=600, most=2048)
    assert one.chunk(200, 0, 0, least=600, most=9) == 9


def test_while_it_is_given_without_room_no_request_is_held_back_for_the_sla() -> None:
    one = sizer()
    crowded = forecast([[900.0]] * 3, [[0.0]] * 3)
    for _ in range(99):
        one.chunk(200, 0, 0, least=16, most=2048)
        assert not one.forced
    assert not one.in_time(200, 0)
    assert one.fitting(crowded) == 0
    one.chunk(200, 0, 0, least=16, most=2048)
    assert one.forced
    assert one.in_time(200, 0)
    assert one.fitting(crowded) == 3


@pytest.mark.parametrize("least", [119, 120])
def test_room_for_the_least_ends_the_wait(least: int) -> None:
    one = sizer()
    for _ in range(99):
        one.chunk(200, 0, 0, least=16, most=2048)
    # 119 tokens fit beside 50 decodes; where they get no prompt any further, it is the 100th.
    one.chunk(50, 5500, 0, least=least, most=2048)
    assert one.forced is (least > 119)


def test_prompt_tokens_that_were_computed_end_the_wait() -> None:
    one = sizer()
    for _ in range(99):
        one.chunk(200, 0, 0, least=16, most=2048)
    one.observe(StepSample(10, 1000, 1, 1, 0.0221))
    assert one.chunk(200, 0, 0, least=16, most=2048) == 0


def test_a_step_of_decodes_alone_is_in_time_up_to_what_the_sla_leaves() -> None:
    one = sizer()
    n = int((UNTIL_S - 0.02) / 2e-4)
    assert one.in_time(n, 0)
    assert not one.in_time(n + 1, 0)
    assert not one.in_time(n, 10_000)


def forecast(alive: list[list[float]], reads: list[list[float]]) -> Forecast:
    zero = np.zeros((len(alive), len(alive[0])))
    return Forecast(np.array(alive), zero, zero, zero, zero, np.array(reads))


def test_as_many_start_as_keep_every_later_step_of_decodes_in_time() -> None:
    # 22.5 ms are left above the fixed part: 100 decodes and 25,000 KV tokens.
    together = forecast(
        [[100.0, 90.0], [100.0, 100.0], [100.0, 100.0], [50.0, 50.0]],
        [[10_000.0, 30_000.0], [24_900.0, 24_900.0], [25_100.0, 0.0], [0.0, 0.0]],
    )
    assert sizer().fitting(together) == 2
    assert sizer().fitting(forecast([[0.0]], [[0.0]])) == 1


def test_the_groups_model_is_taken_once_and_nothing_is_no_model() -> None:
    one = sizer()
    for _ in range(16):
        one.observe(StepSample(10, 1000, 10, 100, 0.0231 * 1.04))
    learned = one.model
    one.receive(MODEL)
    one.receive(None)
    assert one.model == learned
    other = StepModel(0.03, 2e-4, 1e-7, 1e-4, 0.0, 0.0)
    one.receive(other)
    assert one.model != learned


def test_a_fifth_of_what_a_step_with_a_prompt_takes_beyond_its_prediction_is_the_stair() -> None:
    one = sizer()
    # 23.1 ms are predicted, far from being filled up; 0.5 ms more is no outlier.
    one.observe(StepSample(10, 1000, 10, 0, 0.0236))
    assert one.until_s == pytest.approx(UNTIL_S - 0.2 * 0.0005)
    one.observe(StepSample(10, 1000, 10, 0, 0.0236))
    assert one.until_s == pytest.approx(UNTIL_S - 0.2 * 0.0005 - 0.2 * 0.0004)
    assert one.steps == 2


def test_steps_without_a_prompt_say_nothing_of_the_stair() -> None:
    one = sizer()
    one.observe(StepSample(10, 1000, 0, 0, 0.0226))
    one.observe(StepSample(0, 0, 500, 0, 0.071))
    assert one.until_s == pytest.approx(UNTIL_S)
    assert one.steps == 2


# Steps predicted to take UNTIL_S less 2%, or more.
@pytest.mark.parametrize(
    ("predicted_frac", "counts"), [(0.979, False), (0.981, True), (1.02, True), (1.5, True)]
)
def test_only_steps_that_were_filled_up_move_the_margin(
    predicted_frac: float, counts: bool
) -> None:
    one = sizer(StepModel(0.0, 1e-4, 0.0, 0.0, 0.0, 0.0))
    decodes = round(predicted_frac * UNTIL_S / 1e-4 * 10)
    fine = sizer(StepModel(0.0, 1e-5, 0.0, 0.0, 0.0, 0.0))
    fine.observe(StepSample(decodes, 0, 0, 0, decodes * 1e-5))
    assert (fine.until_s != one.until_s) is counts


@pytest.mark.parametrize(("gap_s", "late"), [(0.05, 0), (0.0501, 1), (30.0, 1)])
def test_the_gap_of_a_preempted_request_moves_the_margin_only_where_it_is_late(
    gap_s: float, late: int
) -> None:
    one = sizer()
    # A step that fills what the margin leaves, without an error.
    one.observe(StepSample(112, 0, 0, 0, 0.02 + 112 * 2e-4))
    before_s = one.until_s
    one.resumed(gap_s)
    spread_s = 0.0025 * 0.98**0.5
    assert one.until_s == pytest.approx(before_s - late * 0.2 / 112 * spread_s, rel=1e-9)


def test_held_to_a_share_of_the_sla_steps_end_so_much_earlier() -> None:
    one = sizer()
    one.hold_to(0.9)
    assert one.until_s == pytest.approx(UNTIL_S - 0.005)
    assert one.chunk(50, 5500, 0, least=16, most=2048) == 69
    one.hold_to(1.0)
    assert one.until_s == pytest.approx(UNTIL_S)


def test_the_margin_judges_steps_by_what_they_are_held_to() -> None:
    one, held = sizer(), sizer()
    held.hold_to(0.9)
    for sizer_ in (one, held):
        for _ in range(60):  # 46 ms where 42.5, or 37.5, were aimed at
            decodes = round((sizer_.until_s - 0.02) / 2e-4)
            sizer_.observe(StepSample(decodes, 0, 0, 0, 0.046))
    assert held.until_s < one.until_s


def test_no_share_puts_the_sla_out_of_reach() -> None:
    one = sizer(limit_s=0.024)  # one decode takes 20.2 ms; a tenth more is 22.22
    before_s = one.until_s
    one.hold_to(0.95)
    shorter_s = one.until_s
    assert shorter_s < before_s
    one.hold_to(0.85)
    assert not out_of_reach(one.model, one._limit_s)
    assert one._limit_s == one._margin.limit_s == pytest.approx(0.02222)
    assert one.until_s < shorter_s


def test_a_pause_of_the_host_is_no_part_of_what_steps_take_beyond_their_prediction() -> None:
    one = sizer()
    for k in range(50 + 64 + 1):
        one.observe(StepSample(10, 1000, 0, 0, 3.0 if k == 80 else 0.0221))
    assert one.published.tail_frac == pytest.approx(0, abs=0.005)


def test_a_step_longer_than_it_might_have_been_is_judged_as_one_that_was_filled_up() -> None:
    # 500 decodes take 120 ms, as predicted: an error of nothing, and nothing is late.
    one = sizer()
    one.observe(StepSample(500, 0, 0, 0, 0.12))
    margin_s = (3 - 0.2 * 0.007) * 0.0025 * 0.98**0.5
    assert one.until_s == pytest.approx(0.05 - margin_s, rel=1e-6)


@pytest.mark.parametrize(("prompt", "counts"), [(129, True), (134, False)])
def test_a_step_far_longer_than_it_might_be_stands_on_another_stair(
    prompt: int, counts: bool
) -> None:
    # 42.9 ms are within 2% of the 42.5 that a step may take, 43.4 are not.
    one = sizer()
    one.observe(StepSample(50, 0, prompt, 0, 0.03 + prompt * 1e-4 + 0.0005))
    assert one._stair_s == pytest.approx(0.2 * 0.0005 if counts else 0.0)


def test_who_may_have_fewer_tokens_than_the_least_is_not_starved_with_all_of_them() -> None:
    one = sizer()
    chunks = [one.chunk(50, 5500, 0, least=16, most=9) for _ in range(300)]
    assert chunks == [9] * 300 and not one.forced


def test_a_chunk_that_is_given_without_room_takes_no_late_token_besides() -> None:
    one = sizer()
    for _ in range(60):
        one.observe(StepSample(200, 0, 0, 0, 0.06 * 0.8))
    for _ in range(99):
        one.chunk(200, 0, 0, least=16, most=2048)
        assert one.may_be_late(2)
    one.chunk(200, 0, 0, least=16, most=2048)
    assert one.forced and not one.may_be_late(2)


def test_a_tail_that_is_not_known_for_certain_leaves_what_steps_are_held_to_in_reach() -> None:
    one = sizer()
    one._tail = SimpleNamespace(frac=None, soon=9.0)  # type: ignore[assignment]
    for share in (1.0, 0.9):
        one.hold_to(share)
        least_s = 1.05 * 1.1 * MODEL.one_decode_s
        assert one.published.tail_frac == pytest.approx(share * 0.05 / least_s - 1)
        assert not one.published.tail_known
