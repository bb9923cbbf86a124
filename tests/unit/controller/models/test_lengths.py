"""Moments of request lengths against numpy."""

from dataclasses import astuple

import numpy as np
import pytest

from controller.models.lengths import LengthMoments, LengthRing
from tests.builders import moments_of


def drawn(n: int = 500) -> list[tuple[int, int]]:
    rng = np.random.default_rng(7)
    inputs = rng.integers(1, 400, n)
    outputs = inputs // 2 + rng.geometric(1 / 80, n)
    return [(int(i), int(o)) for i, o in zip(inputs, outputs, strict=True)]


def test_moments_are_numpys() -> None:
    lengths = drawn()
    inputs, outputs = np.array(lengths).T
    moments = moments_of(lengths)
    assert moments.n == 500
    assert moments.mean_input == pytest.approx(inputs.mean())
    assert moments.mean_output == pytest.approx(outputs.mean())
    assert moments.mean_total == pytest.approx(inputs.mean() + outputs.mean())
    assert moments.variance_total == pytest.approx(inputs.var() + outputs.var())


def test_the_held_mean_is_the_formula_with_covariance_and_variation() -> None:
    lengths = drawn()
    inputs, outputs = np.array(lengths).T
    covariance = np.cov(inputs, outputs, bias=True)[0, 1]
    cv2 = outputs.var() / outputs.mean() ** 2
    expected = inputs.mean() + covariance / outputs.mean() + outputs.mean() * (1 + cv2) / 2
    assert moments_of(lengths).mean_held == pytest.approx(expected)


def test_fixed_lengths_are_held_with_half_their_output() -> None:
    fixed = moments_of([(128, 128)] * 5)
    assert fixed.variance_total == 0
    assert fixed.mean_held == 192
    assert fixed.mean_total / fixed.mean_held == pytest.approx(4 / 3)  # eq. 8 is a third above


def test_exponential_outputs_are_held_with_their_whole_mean() -> None:
    outputs = np.random.default_rng(3).geometric(1 / 200, 200_000)
    live = moments_of([(100, int(o)) for o in outputs]).mean_held
    assert live == pytest.approx(100 + 200, rel=0.02)


def test_the_held_mean_is_what_a_running_request_holds_on_average_over_its_steps() -> None:
    lengths = drawn(50)
    held = [i + k + 0.5 for i, o in lengths for k in range(o)]  # seen in the middle of each step
    assert moments_of(lengths).mean_held == pytest.approx(np.mean(held))


def test_nothing_finished_is_all_zero() -> None:
    nothing = LengthMoments()
    assert nothing.mean_total == nothing.variance_total == nothing.mean_held == 0


def test_requests_without_output_hold_their_input() -> None:
    assert moments_of([(40, 0), (60, 0)]).mean_held == 50


def test_moments_of_two_replicas_add_up_to_those_of_all_requests() -> None:
    lengths = drawn()
    assert moments_of(lengths[:200]) + moments_of(lengths[200:]) == moments_of(lengths)


def test_moments_of_nothing_are_six_zeros() -> None:
    assert astuple(LengthMoments()) == (0,) * 6
    ring = LengthRing()
    assert ring.moments() == LengthMoments(0, 0, 0, 0, 0, 0)


def test_the_ring_remembers_1024_requests() -> None:
    ring = LengthRing()
    for length in range(1, 1026):
        ring.add(length, 1)
    assert ring.moments() == moments_of([(length, 1) for length in range(2, 1026)])


def test_the_held_variance_is_that_of_input_and_half_the_output_and_of_the_age() -> None:
    # i + o/2 is 150 or 350; o^2 / 12 is 833 or 7,500 and has the mean 4,167.
    moments = moments_of([(100, 100), (200, 300)])
    assert moments.variance_held == pytest.approx(10_000 + 50_000 / 12)
    assert moments.variance_total == pytest.approx(2_500 + 10_000)


def test_inputs_and_outputs_that_vary_against_each_other_hold_less_different_amounts() -> None:
    moments = moments_of([(200, 100), (100, 300)])  # i + o/2 is 250 for both
    assert moments.variance_held == pytest.approx(50_000 / 12)


def test_the_ring_remembers_the_newest_requests_only() -> None:
    lengths = drawn()
    ring = LengthRing(size=64)
    for i, o in lengths:
        ring.add(i, o)
    assert ring.moments() == moments_of(lengths[-64:])


def test_what_running_requests_hold_varies_by_their_lengths_and_by_their_age() -> None:
    lengths = drawn()
    inputs, outputs = np.array(lengths).T
    spread = np.var(inputs + outputs / 2)  # at half of its output each
    assert moments_of(lengths).variance_held == pytest.approx(
        spread + (outputs.astype(float) ** 2).mean() / 12
    )


def test_fixed_lengths_vary_by_age_alone() -> None:
    assert moments_of([(128, 120)] * 5).variance_held == pytest.approx(120**2 / 12)
    assert LengthMoments().variance_held == 0
