"""How far steps go beyond their prediction at a percentile."""

import numpy as np
import pytest

from controller.capacity import out_of_reach
from controller.models.step_time import MIN_STEPS, StepModel
from controller.models.tail import KNOWN, WINDOW_STEPS, WINDOWS, Level, Tail
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample


def learn(tail: Tail, largest: float, times: int = 1, steps: int = WINDOW_STEPS) -> None:
    """Full windows whose errors rise from 0 to ``largest``."""
    for _ in range(times):
        for number in range(steps):
            tail.add(largest * (number + 1) / steps)


def test_it_is_known_after_three_windows_and_the_bound_after_one() -> None:
    tail = Tail(99)
    for number in range(KNOWN * WINDOW_STEPS - 1):
        assert tail.frac is None
        assert (tail.most is None) == (number < WINDOW_STEPS)
        tail.add(0.1)
    tail.add(0.1)
    assert tail.frac == tail.most == 0.1


@pytest.mark.parametrize(("percentile", "beyond"), [(99, 2), (90, 25), (50, 128)])
def test_the_share_beyond_it_is_what_the_percentile_leaves(percentile: float, beyond: int) -> None:
    tail = Tail(percentile)
    learn(tail, 1.0, KNOWN)
    assert tail.frac == pytest.approx(1 - beyond / WINDOW_STEPS)
    assert tail.most == 1.0


def test_a_higher_percentile_takes_a_longer_window() -> None:
    tail = Tail(99.9)
    learn(tail, 1.0, KNOWN, steps=2560)
    assert tail.frac == pytest.approx(1 - 2 / 2560)


def test_one_window_that_a_change_spoiled_does_not_count() -> None:
    tail = Tail(99)
    learn(tail, 0.1, 4)
    before = tail.frac
    learn(tail, 0.9)
    assert tail.frac == before
    assert tail.most == 0.9
    learn(tail, 0.1, WINDOWS)
    assert tail.frac == before
    assert tail.most == 0.1


def test_noise_that_stays_counts_after_three_windows() -> None:
    tail = Tail(99)
    learn(tail, 0.1, 5)
    learn(tail, 0.9, 2)
    assert tail.frac is not None
    assert tail.frac < 0.1
    learn(tail, 0.9)
    assert tail.frac == pytest.approx(0.9 * (1 - 2 / WINDOW_STEPS))


def test_steps_that_take_less_than_predicted_leave_nothing_to_hold_back() -> None:
    tail = Tail(99)
    for _ in range(KNOWN * WINDOW_STEPS):
        tail.add(-0.2)
    assert tail.frac == tail.most == 0.0


def test_of_256_errors_the_third_largest_is_the_99th_percentile_and_five_windows_count() -> None:
    tail = Tail(99)
    for window in range(6):
        assert (tail.most is None, tail.frac is None) == (window < 1, window < 3)
        for number in range(256):
            tail.add((10 - window) * (number + 1))
    # Windows 1 to 5 are left: 9 x 254, 8 x 254, ...
    assert tail.frac == 7 * 254
    assert tail.most == 9 * 256


def test_the_level_is_in_the_largest_error_and_not_in_the_percentile() -> None:
    tail = Tail(99)
    for number in range(KNOWN * WINDOW_STEPS):
        tail.add(0.5 if number % 100 else 0.7, 0.4)
    assert tail.frac == pytest.approx(0.3)
    assert tail.most == 0.7


def test_the_largest_error_does_not_wait_for_its_window_to_end() -> None:
    tail = Tail(99)
    tail.add(0.3)
    assert tail.most is None
    learn(tail, 0.1, steps=WINDOW_STEPS - 1)
    assert tail.most == 0.3
    tail.add(0.9)
    assert tail.most == 0.9
    tail.add(0.2)
    assert tail.most == 0.9


def test_a_level_is_the_mean_of_the_last_ten_errors_before_this_one() -> None:
    level = Level()
    assert level.of(1.0, jumped=False) == 0.0
    assert level.of(1.0, jumped=False) == pytest.approx(0.1)
    assert level.of(0.0, jumped=False) == pytest.approx(0.19)
    assert level.of(0.0, jumped=False) == pytest.approx(0.171)


def test_another_speed_is_a_level_at_once() -> None:
    level = Level()
    assert level.of(0.75, jumped=True) == 0.75
    assert level.of(0.75, jumped=False) == 0.75
    assert level.of(-0.5, jumped=True) == -0.5


TRUE = StepModel(0.02, 2e-4, 0.0, 1e-4, 0.0, 0.0)


def tail_frac(
    speed: float, changed: int, windows: int = KNOWN, noise: float = 0.0, prior: bool = True
) -> float:
    """What is measured where steps get slower; decodes alone, or the stair would cover it."""
    sizer, rng = ChunkSizer(0.06, 99), np.random.default_rng(3)
    if prior:
        sizer.receive(TRUE)
    for number in range(MIN_STEPS + windows * WINDOW_STEPS):
        decodes = 40 + number % 20
        took_s = TRUE.predict_s(decodes, 0, 0, 0) * (speed if number >= changed else 1.0)
        took_s *= 1 + noise * float(rng.standard_normal())
        sizer.observe(StepSample(decodes, 0, 0, 0, took_s))
    return sizer.model.tail_frac


def test_the_margin_is_bounded_a_window_after_the_first_fifty_steps() -> None:
    sizer = ChunkSizer(0.06, 99)
    sizer.receive(TRUE)
    for _ in range(50 + 256 - 1):
        sizer.observe(StepSample(40, 0, 0, 0, TRUE.predict_s(40, 0, 0, 0)))
        assert sizer.until_s == pytest.approx(0.06 - 3 * 0.05 * 0.06)
    sizer.observe(StepSample(40, 0, 0, 0, TRUE.predict_s(40, 0, 0, 0)))
    assert sizer.until_s == pytest.approx(0.06)


@pytest.mark.parametrize("speed", [0.5, 1.03, 1.2, 2.0])
@pytest.mark.parametrize("changed", [400, 540, 560, 700])  # two of the three windows, or one
def test_a_change_of_speed_is_no_noise(speed: float, changed: int) -> None:
    assert tail_frac(speed, changed) < 0.01


def test_a_first_guess_that_is_off_is_no_noise() -> None:
    # The guess has a small part in the fit for good, which makes an error of a hundredth.
    always = tail_frac(1.0, 0, WINDOWS, prior=False)
    assert always < 0.015
    for windows in (KNOWN + 1, WINDOWS):
        changed = tail_frac(1.5, 560, windows, prior=False)
        assert changed == pytest.approx(always, abs=0.002)


def test_until_three_windows_are_full_the_least_one_counts_and_before_that_a_deviation() -> None:
    tail = Tail(99)
    for _ in range(63):
        tail.add(0.1)
        assert tail.soon is None
    tail.add(-0.1)
    assert tail.soon == pytest.approx(2.3263 * 0.1, rel=1e-4)
    for _ in range(WINDOW_STEPS - 64):
        tail.add(0.1)
    assert tail.soon == 0.1
    for _ in range(WINDOW_STEPS):
        tail.add(0.05)
    assert tail.soon == 0.05
    learn(tail, 0.3)
    assert tail.frac == 0.1


def test_a_change_in_the_first_window_is_not_what_steps_take_beyond_their_prediction() -> None:
    tail = Tail(99)
    for error in [0.01] * 64 + [0.5] * 64:
        tail.add(error)
    assert tail.soon == pytest.approx(2.3263 * 0.01, rel=1e-4)  # of the calm half
    for _ in range(WINDOW_STEPS - 128):
        tail.add(0.3)
    assert tail.soon == pytest.approx(2 * 2.3263 * 0.01, rel=1e-4)
    for _ in range(WINDOW_STEPS):
        tail.add(0.02)
    assert tail.soon == 0.02


def test_what_a_few_windows_have_shown_does_not_put_the_sla_out_of_reach() -> None:
    sizer = ChunkSizer(0.024, 99)  # one decode takes 20.2 ms, and a tenth more is in reach
    sizer.receive(TRUE)
    rng = np.random.default_rng(3)
    for _ in range(MIN_STEPS + 2 * WINDOW_STEPS):
        took_s = TRUE.predict_s(10, 0, 0, 0) * (1 + 0.2 * float(rng.standard_normal()))
        sizer.observe(StepSample(10, 0, 0, 0, took_s))
        assert not out_of_reach(sizer.published, 0.024)
        assert sizer.model.tail_frac == 0
    assert 0 < sizer.published.tail_frac < 0.05


def test_where_the_model_charges_nothing_for_a_decode_the_sla_is_in_reach() -> None:
    sizer, rng = ChunkSizer(0.05, 99), np.random.default_rng(3)
    sizer.receive(StepModel(0.0, 0.0, 0.0, 1e-4, 0.0, 0.0))  # all of a step is its prompts
    for number in range(MIN_STEPS + 100):
        prompt = 100 + 50 * (number % 6)  # less than in proportion, so that the rest comes out < 0
        took_s = (1e-4 * prompt - 0.005) * (1 + 0.2 * float(rng.standard_normal()))
        sizer.observe(StepSample(1, 0, prompt, 0, took_s))
    assert sizer.model.predict_s(1, 0, 0, 0) == 0
    assert sizer.published.tail_frac > 0
    assert not out_of_reach(sizer.published, 0.05)
    sizer.observe(StepSample(1, 0, 0, 0, 0.001))  # no error relative to nothing
    assert sizer.steps == MIN_STEPS + 101


def test_independent_noise_is_measured_as_it_is() -> None:
    # The 99th percentile of a normal distribution is 2.33 deviations.
    assert tail_frac(1.0, 0, WINDOWS, noise=0.03) == pytest.approx(0.07, rel=0.15)
