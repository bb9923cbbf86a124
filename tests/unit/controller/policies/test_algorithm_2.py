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


@pytest.mark.parametrize(
    ("before", "window", "b", "ends", "options"),
    [
        # Too slow: high comes down to the measured batch, low stays at B_min.
        ((), (SLOW_S, 100), 50, (1, 100), {}),
        ((), (SLOW_S, 5), 9, (1, 17), {}),  # ... but alpha above low
        (((FAST_S, 100),), (SLOW_S, 178), 137, (96, 178), {}),  # low is lowered by delta
        # Fast enough: low comes up to the measured batch, high stays at B_max.
        ((), (FAST_S, 100), 178, (100, 256), {}),
        ((), (FAST_S, 250), 248, (240, 256), {}),  # ... but alpha below high
        (((SLOW_S, 100),), (FAST_S, 50), 77, (50, 104), {}),  # high is raised by delta
        # Inside the band the interval closes around the measured batch, inside its bounds.
        ((), (0.051, 80), 80, (72, 88), {}),
        ((), (RIGHT_S, 80), 80, (78, 82), {"alpha": 5}),  # half of an odd alpha
        ((), (RIGHT_S, 254), 251, (246, 256), {}),
        ((), (RIGHT_S, 3), 6, (1, 11), {}),
        ((), (RIGHT_S, 81.5), 81, (73.5, 89.5), {}),
        # Line 15; line 6 puts high at 40 + 16, line 9 puts low at 50 - 100.
        ((), (SLOW_S, 5), 44, (40, 56), {"b_min": 40, "b_max": 44}),
        ((), (FAST_S, 30), 20, (-50, 50), {"b_min": 20, "b_max": 50, "alpha": 100}),
        ((), (SLOW_S, 256), 128, (1, 256), {}),  # while 256 run on, and drain
    ],
)
def test_a_window_moves_the_interval(before, window, b, ends, options):
    sla = algorithm(**options)
    if not options:
        assert (sla.low, sla.high) == (1, 256)
    for one in before:
        sla.batch(*one)
    assert sla.batch(*window) == b
    assert (sla.low, sla.high) == ends


@pytest.mark.parametrize(("tau_s", "b"), [(0.625, 80), (0.375, 80), (0.626, 40), (0.374, 168)])
def test_the_edges_of_the_band_are_inside_it(tau_s: float, b: int) -> None:
    assert algorithm(d_sla_s=0.5, epsilon_d_s=0.125).batch(tau_s, 80) == b


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
