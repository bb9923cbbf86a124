"""Moments of request lengths against numpy."""

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


def test_fixed_lengths_are_held_with_half_their_output() -> None:
    fixed = moments_of([(128, 128)] * 5)
    assert fixed.variance_total == 0
    assert fixed.mean_held == 192
    assert fixed.variance_held == pytest.approx(128**2 / 12)  # by age alone
    assert fixed.mean_total / fixed.mean_held == pytest.approx(4 / 3)  # eq. 8 is a third above


def test_the_held_mean_is_what_a_running_request_holds_on_average_over_its_steps() -> None:
    lengths = drawn(50)
    held = [i + k + 0.5 for i, o in lengths for k in range(o)]  # seen in the middle of each step
    assert moments_of(lengths).mean_held == pytest.approx(np.mean(held))


def test_nothing_finished_is_all_zero() -> None:
    nothing = LengthMoments()
    assert LengthRing().moments() == nothing
    assert nothing.variance_held == 0
    assert nothing.mean_total == nothing.variance_total == nothing.mean_held == 0


def test_requests_without_output_hold_their_input() -> None:
    assert moments_of([(40, 0), (60, 0)]).mean_held == 50


def test_the_ring_remembers_1024_requests() -> None:
    ring = LengthRing()
    for length in range(1, 1026):
        ring.add(length, 1)
    assert ring.moments() == moments_of([(length, 1) for length in range(2, 1026)])


def test_what_running_requests_hold_varies_by_their_lengths_and_by_their_age() -> None:
    lengths = drawn()
    inputs, outputs = np.array(lengths).T
    spread = np.var(inputs + outputs / 2)  # at half of its output each
    assert moments_of(lengths).variance_held == pytest.approx(
        spread + (outputs.astype(float) ** 2).mean() / 12
    )
