"""Algorithm 2 (SLA), line by line: one window in, one batch size out."""

from typing import Any

import pytest

from controller.policies.paper import SlaBatching

SLOW_S, RIGHT_S, FAST_S = 0.060, 0.050, 0.040


def algorithm(**overrides: Any) -> SlaBatching:
    """D_SLA 50 +- 2 ms over 1..256, alpha 16, delta 4."""
    plain: dict[str, Any] = {
        "d_sla_s": 0.050,
        "epsilon_d_s": 0.002,
        "b_min": 1,
        "b_max": 256,
        "alpha": 16,
        "delta": 4,
    }
    return SlaBatching(**plain | overrides)


def interval(sla: SlaBatching) -> tuple[float, float]:
    return sla.low, sla.high


def test_line_1_searches_from_b_min_to_b_max() -> None:
    assert interval(algorithm()) == (1, 256)


def test_too_slow_brings_high_down_to_the_measured_batch() -> None:
    sla = algorithm()
    assert sla.batch(SLOW_S, 100) == 50
    assert interval(sla) == (1, 100)  # low stays at B_min


def test_too_slow_keeps_high_alpha_above_low() -> None:
    sla = algorithm()
    assert sla.batch(SLOW_S, 5) == 9
    assert interval(sla) == (1, 17)


def test_too_slow_lowers_low_by_delta() -> None:
    sla = algorithm()
    sla.batch(FAST_S, 100)
    assert sla.batch(SLOW_S, 178) == 137
    assert interval(sla) == (96, 178)


def test_fast_enough_brings_low_up_to_the_measured_batch() -> None:
    sla = algorithm()
    assert sla.batch(FAST_S, 100) == 178
    assert interval(sla) == (100, 256)  # high stays at B_max


def test_fast_enough_keeps_low_alpha_below_high() -> None:
    sla = algorithm()
    assert sla.batch(FAST_S, 250) == 248
    assert interval(sla) == (240, 256)


def test_fast_enough_raises_high_by_delta() -> None:
    sla = algorithm()
    sla.batch(SLOW_S, 100)
    assert sla.batch(FAST_S, 50) == 77
    assert interval(sla) == (50, 104)


def test_inside_the_band_the_interval_closes_around_the_measured_batch() -> None:
    sla = algorithm()
    assert sla.batch(0.051, 80) == 80
    assert interval(sla) == (72, 88)


def test_inside_the_band_half_of_an_odd_alpha_is_rounded_down() -> None:
    sla = algorithm(alpha=5)
    assert sla.batch(RIGHT_S, 80) == 80
    assert interval(sla) == (78, 82)


@pytest.mark.parametrize(
    ("b_bar", "b", "ends"), [(254, 251, (246, 256)), (3, 6, (1, 11)), (81.5, 81, (73.5, 89.5))]
)
def test_inside_the_band_the_interval_stays_in_the_bounds(
    b_bar: float, b: int, ends: tuple[float, float]
) -> None:
    sla = algorithm()
    assert sla.batch(RIGHT_S, b_bar) == b
    assert interval(sla) == ends


@pytest.mark.parametrize(("tau_s", "b"), [(0.625, 80), (0.375, 80), (0.626, 40), (0.374, 168)])
def test_the_edges_of_the_band_are_inside_it(tau_s: float, b: int) -> None:
    assert algorithm(d_sla_s=0.5, epsilon_d_s=0.125).batch(tau_s, 80) == b


def test_line_15_keeps_the_batch_between_b_min_and_b_max() -> None:
    # Line 6 puts high at 40 + 16, line 9 puts low at 50 - 100: neither end has a bound there.
    assert algorithm(b_min=40, b_max=44).batch(SLOW_S, 5) == 44
    assert algorithm(b_min=20, b_max=50, alpha=100).batch(FAST_S, 30) == 20


def test_line_15_leaves_the_running_decodes_to_the_governor() -> None:
    assert algorithm().batch(SLOW_S, 256) == 128  # while 256 run on, and drain


def test_flaw_a_full_batch_inside_the_sla_is_held_half_alpha_below_b_max() -> None:
    sla = algorithm()
    b = 256
    for _ in range(50):
        b = sla.batch(FAST_S, b)
    assert b == 256 - 16 // 2


def test_flaw_the_interval_winds_up_while_the_load_does_not_reach_the_cap() -> None:
    sla = algorithm()
    sla.batch(SLOW_S, 100)
    for _ in range(50):
        sla.batch(FAST_S, 2)
    assert sla.high == 256  # nothing was measured above a batch of 100


def test_flaw_after_a_step_change_it_moves_by_about_delta_a_window() -> None:
    sla = algorithm()
    b = sla.batch(RIGHT_S, 50)
    caps = [b := sla.batch(FAST_S, b) for _ in range(6)]
    assert caps == [52, 56, 60, 64, 68, 72]
