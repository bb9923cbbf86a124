"""The step-time fit, judged by its prediction error, and histograms of durations."""

from dataclasses import replace

import numpy as np
import pytest

from controller.models.histogram import (
    LogHistogram,
    merge,
)
from controller.models.step_time import StepModel, StepStats, fit
from controller.records import StepSample
from tests.builders import histogram_of, linear_steps, sample, stats_of

TRUTH = StepModel(c0=0.012, c1=8e-5, c2=6e-8, c3=1.1e-5, c4=2e-10, sigma_s=0.0)


def steps(count: int, seed: int = 0, noise_s: float = 0.0) -> list[StepSample]:
    """Steps of ordinary size that take what TRUTH says, and some noise."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        decodes = int(rng.integers(1, 256))
        kv = decodes * int(rng.integers(100, 3000))
        prefill = int(rng.integers(0, 2048)) if rng.random() < 0.4 else 0
        context = prefill * int(rng.integers(1, 4000))
        duration_s = TRUTH.predict_s(decodes, kv, prefill, context) + rng.normal(0, noise_s)
        out.append(StepSample(decodes, kv, prefill, context, max(duration_s, 0.0)))
    return out


def fitted(stats: StepStats) -> StepModel:
    model = fit(stats)
    assert model is not None
    return model


def test_replicas_that_know_one_size_each_know_the_model_together() -> None:
    small = stats_of([sample(decodes=10, kv_tokens=0, duration_s=0.022)] * 60)
    large = stats_of([sample(decodes=90, kv_tokens=0, duration_s=0.038)] * 60)
    assert fit(small) is None
    assert fit(large) is None
    assert fitted(small + large).predict_s(50, 0, 0, 0) == pytest.approx(0.03, rel=0.01)


def test_fifty_steps_tell_something_and_fewer_nothing() -> None:
    stats = stats_of(linear_steps(60))
    assert fit(StepStats()) is None
    assert fit(StepStats(stats.a, stats.b, 49.999, stats.tt)) is None
    assert fit(StepStats(stats.a, stats.b, 50.0, stats.tt)) is not None


def test_steps_of_the_same_size_tell_nothing() -> None:
    assert fit(stats_of([sample(decodes=64)] * 500)) is None


def test_a_coefficient_that_comes_out_negative_is_zero() -> None:
    # The more decodes, the faster: no such machine.
    model = fitted(stats_of([sample(decodes=b, duration_s=0.1 - b * 1e-4) for b in range(1, 200)]))
    assert model.c1 == 0


def test_the_fit_is_least_squares_with_a_thousandth_of_a_step_of_ridge() -> None:
    seen = [
        replace(s, duration_s=s.duration_s + 0.004 * (s.prefill_tokens > 0))
        for s in steps(200, noise_s=0.001)
    ]
    stats = stats_of(seen)
    # In coefficients of ordinary features: of context tokens alone.
    alone = np.eye(6)
    alone[4, 3] = -1
    a, b = alone @ np.array(stats.a).reshape(6, 6) @ alone.T, alone @ np.array(stats.b)
    c = np.linalg.solve(a + np.diag([1e-3] * 5 + [0.1]), b)
    model = fitted(stats)
    sizes = [1, 100, 100_000, 1000, 1_000_000, 1]
    found = [model.c0, model.c1, model.c2, model.c3, model.c4, model.mixed_s]
    assert (c > 0).all()
    assert found == pytest.approx((c / sizes).tolist())
    left = stats.tt - 2 * c @ b + c @ a @ c
    assert model.sigma_s == pytest.approx(np.sqrt(left / stats.n))


def test_an_empty_histogram_has_no_percentile() -> None:
    assert LogHistogram().n == 0
    assert merge([]) == LogHistogram()
    assert LogHistogram().percentile_s(99) is None
    assert (LogHistogram().longest_s, LogHistogram().above(0.0)) == (None, 0)


@pytest.mark.parametrize("duration_s", [2e-4, 0.0099, 1.0, 240.0])
def test_what_is_above_a_duration_is_counted_but_for_a_bins_width(duration_s: float) -> None:
    seen = histogram_of([duration_s, duration_s * 1.01, duration_s * 1.26, duration_s * 10])
    assert seen.above(duration_s) in (2, 3)
    assert seen.above(duration_s / 1.26) == 4


def test_one_gap_of_minutes_among_thousands_is_seen() -> None:
    seen = histogram_of([0.02] * 5000 + [240.0])
    assert seen.percentile_s(99.9) == pytest.approx(0.02, rel=0.06)
    assert seen.above(2.0) == 1
    assert seen.longest_s is not None
    assert 240.0 <= seen.longest_s <= 240.0 * 1.13
    assert histogram_of([1e9]).longest_s == pytest.approx(1000.0)
